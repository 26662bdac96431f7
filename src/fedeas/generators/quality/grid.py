"""Samples on one sheet, a row for each class: uncurated, enlarged without smoothing."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, written_whole
from fedeas.generators.base import Generator, Images, checked_address, image_index

MARGIN = 16  # white pixels around the sheet and between names and images

GAP = 3  # white pixels between images

INK = (38, 38, 38)

COLUMNS = 10  # images in a row, at most

SCALE = 4  # factor by which images in a grid are enlarged

LARGEST_SIDE = 64  # largest side of an image in a strip, in pixels; larger images are shrunk


def save_grid(images: Images, labels: ArrayLike, class_names: Sequence[str], path: PathLike) -> None:
    """Write a PNG with the first images of each class in a row, its name at the left.

    Images are uint8 (N, channels, height, width), grey or colour. A class without images has no row. Names are in one
    column, right-aligned and centred on their row.
    """
    classes = _checked(images, labels, len(class_names))
    rows = [(name, images[classes == label][:COLUMNS]) for label, name in enumerate(class_names)]
    rows = [(name, own) for name, own in rows if len(own)]
    height, width = (SCALE * side + GAP for side in rows[0][1].shape[2:])
    font = ImageFont.load_default(size=min(max(11, (height - GAP) // 4), 28))  # Pillow's own, as high as images allow
    left = MARGIN + int(np.ceil(max(font.getbbox(name)[2] for name, _ in rows))) + MARGIN
    sheet = Image.new("RGB", (left + COLUMNS * width - GAP + MARGIN, 2 * MARGIN + len(rows) * height - GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for row, (name, own) in enumerate(rows):
        top = MARGIN + row * height
        pen.text((left - MARGIN, top + (height - GAP) / 2), name, fill=INK, font=font, anchor="rm")
        for column, image in enumerate(own):
            large = picture(image.repeat(SCALE, axis=1).repeat(SCALE, axis=2))
            sheet.paste(large, (left + column * width, top))
    with written_whole(path) as part:
        sheet.save(part, format="PNG", optimize=True)


def sample_grid(generator: Generator, class_names: Sequence[str], path: PathLike) -> None:
    """Write a sheet of the first client's first images of every class, without a selection."""
    labels = np.repeat(np.arange(generator.num_classes), COLUMNS)
    index = np.tile(image_index(0, COLUMNS), generator.num_classes)
    save_grid(generator.sample(labels, index), labels, class_names, path)


def strip(images: Images) -> tuple[bytes, int, int]:
    """A PNG with these images side by side, a white pixel between them, and how wide and high it is.

    There is room for `COLUMNS` images, so that all strips of images of one size have the same width. Images are not
    enlarged; a page can do that.
    """
    _checked(images, np.zeros(len(images), dtype=np.int64), 1)
    tiles = list(map(picture, images[:COLUMNS]))
    for tile in tiles:
        tile.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    width, height = tiles[0].size
    sheet = Image.new(tiles[0].mode, (COLUMNS * (width + 1) - 1, height), "white")
    for column, tile in enumerate(tiles):
        sheet.paste(tile, (column * (width + 1), 0))
    file = BytesIO()
    sheet.save(file, format="PNG", optimize=True)
    return file.getvalue(), *sheet.size


def picture(image: Images) -> Image.Image:
    """One image of (1 or 3, height, width), for Pillow."""
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))


def pixels_of(content: bytes, shape: tuple[int, int, int]) -> Images:
    """The image of this shape in a PNG file; damage, or another size in its header, raises an error."""
    Image.open(BytesIO(content), formats=["PNG"]).verify()  # the checksums of its parts
    image = Image.open(BytesIO(content), formats=["PNG"])
    if image.size != (shape[2], shape[1]):
        raise ValueError("another size")
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _checked(images: Images, labels: ArrayLike, num_classes: int) -> IntArray:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or not images.size:
        raise InputError(f"images must be uint8 of (N, 1 or 3, height, width), not {images.dtype} {images.shape}")
    return checked_address(labels, np.arange(len(images)), num_classes)[0]
