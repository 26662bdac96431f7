"""A cache of decoded images: decoded once, on all cores, and then memory-mapped.

A cache folder holds four arrays and a manifest with their checksums. It is filled under a temporary name and renamed
when it is complete; a folder that is incomplete or damaged is removed and built again.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.lib.format import open_memmap

from fedeas.core.arrays import BYTES_PER_BYTE, FREE_BYTES, ByteArray, IntArray, cores, frozen, json_digest
from fedeas.core.errors import InputError, extra_for, reason_of
from fedeas.core.files import cache_folder, remove_leftovers, temporary
from fedeas.core.records import checked_stat, read_record, write_record
from fedeas.data.dataset import Dataset, check_parts, count_repeated, notes_on_repeated

if TYPE_CHECKING:
    from PIL.Image import Image


MOST_PIXELS = 2**26  # of an image; less than where Pillow warns
DECODER_VERSION = 2  # part of the fingerprint: raise it when the same files would give other arrays
PARALLEL_FROM = 4096  # fewer images are decoded faster than processes start
ATTEMPTS = 3
MANIFEST = "manifest.json"


class Pictures(Protocol):
    """Encoded images in a fixed order; picklable, so that other processes can read them."""

    def __len__(self) -> int:
        """Number of images."""

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """For each image from `start` up to `stop`, its place (for messages) and its bytes."""


Job = tuple[Pictures, Path, int, int]
"""Images to decode, the file of the array for all of them, and the range of this job."""


class Encoded(NamedTuple):
    """A dataset whose images are not decoded yet."""

    images: Pictures
    labels: IntArray
    test_images: Pictures
    test_labels: IntArray
    classes: tuple[str, ...]


def load_decoded(
    name: str, identity: str, base: Path, files: Sequence[Path], read: Callable[[], Encoded], one_part: bool = False
) -> Dataset:
    """The dataset from the cache or, if it is not there, decoded from what `read` returns of these files below `base`.

    The cache knows files by what the file system says of them; hashing their content would take too long. Files can be
    exchanged or edited while names, sizes and times of modification stay the same. Exchanged files have other inodes
    under their names, and an edit always changes the time of the last change (ctime).
    """
    stats = [(path.relative_to(base).as_posix(), checked_stat(path)) for path in files]
    about = [[place, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for place, stat in stats]
    source = json_digest([DECODER_VERSION, identity + " one part" * one_part, about], sort_keys=True)
    root = cache_folder()
    folder = root / f"{re.sub(r'[^a-zA-Z0-9]+', '-', name)[-40:].strip('-')}-{source[:16]}"
    for _ in range(ATTEMPTS):  # another process may just be replacing the folder
        found = _open(folder, name, source)
        if found is not None:
            return found
        encoded = read()
        check_parts(base, encoded.labels, None if one_part else encoded.test_labels, encoded.classes)
        try:
            _build(folder, source, encoded, base, sum(stat.st_size for _, stat in stats))
        except OSError as error:
            reason = reason_of(error)
            raise InputError(f"{root}: cannot be written ({reason}); set FEDEAS_CACHE to another folder") from None
    raise InputError(f"{folder}: damaged again after {ATTEMPTS} attempts; set FEDEAS_CACHE to a folder on another disk")


def decode(encoded: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, ByteArray]]:
    """Place and pixels of each image, (channels, height, width); one channel if it is grey, otherwise three."""
    with extra_for("reading images"):
        from PIL import UnidentifiedImageError
        from PIL.Image import DecompressionBombError, DecompressionBombWarning
        from PIL.Image import open as open_image

    likely: str | None = None  # format of the last image: trying all formats takes longer than decoding
    for place, data in encoded:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DecompressionBombWarning)  # of more pixels than our own limit
                try:
                    image = open_image(io.BytesIO(data), formats=[likely] if likely else None)
                except (UnidentifiedImageError, KeyError):  # KeyError: some JPEG files call their format MPO
                    image = open_image(io.BytesIO(data))
            if prod(image.size) > MOST_PIXELS:  # known from the header; nothing is decoded yet
                raise DecompressionBombError
            likely = image.format
            pixels = None if image.mode.startswith(("I", "F")) else _pixels(image)
        except (DecompressionBombError, DecompressionBombWarning):
            limit = f"an image may have at most {MOST_PIXELS:,} pixels in FedEAS"
            raise InputError(f"{place}: too large ({limit}); make it smaller") from None
        except Exception as error:  # each format fails in its own ways
            unknown = isinstance(error, UnidentifiedImageError)  # whose text shows an address in memory
            reason = "no format that Pillow knows" if unknown else reason_of(error)
            raise InputError(f"{place}: cannot be decoded ({reason}); repair or remove the image") from None
        if pixels is None:
            raise InputError(f"{place}: has more than 8 bits for each pixel; convert it to 8 bits")
        yield place, pixels


def _pixels(image: Image) -> ByteArray:
    """The image as a viewer shows it: turned as its EXIF data say, transparent pixels on white."""
    from PIL.Image import alpha_composite, new
    from PIL.ImageOps import exif_transpose

    image.load()
    with suppress(Exception):  # damaged EXIF data fail in many ways; the image is then taken as it is stored
        exif_transpose(image, in_place=True)
    is_grey, has_palette = image.mode in ("1", "L", "LA"), image.mode in ("P", "PA")
    if image.has_transparency_data:
        image = alpha_composite(new("RGBA", image.size, "white"), image.convert("RGBA"))
    if is_grey:
        return np.asarray(image.convert("L"))[None]
    pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return pixels[:1] if has_palette and (pixels == pixels[0]).all() else pixels


def _build(folder: Path, source: str, encoded: Encoded, base: Path, size: int) -> None:
    """Fill a folder; an unusable one in its place is renamed first, so that no process sees it half removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder.parent)
    part, aside = temporary(folder), temporary(folder)
    with suppress(FileNotFoundError):
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    part.mkdir()
    try:
        _, first = next(decode(encoded.images.read(0, 1)))
        needed = (len(encoded.images) + len(encoded.test_images)) * first.size
        if needed > max(FREE_BYTES, BYTES_PER_BYTE * size):
            raise InputError(f"{base}: images of {size:,} bytes would become {needed:,}; make them smaller")
        if _write_images(part, encoded, first.shape):
            _write_images(part, encoded, (3, *first.shape[1:]))
        np.save(part / "labels.npy", encoded.labels)
        np.save(part / "test_labels.npy", encoded.test_labels)
        checksums = {path.stem: {"sha256": _file_checksum(path)} for path in part.glob("*.npy")}
        repeated = count_repeated(*(np.load(part / f"{name}.npy", mmap_mode="r") for name in ("images", "test_images")))
        content = {"source": source, "classes": encoded.classes, "repeated": repeated, "arrays": checksums}
        write_record(part / MANIFEST, content)
        with suppress(OSError):  # another process was faster, and its folder is the same
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_images(folder: Path, encoded: Encoded, shape: tuple[int, ...]) -> bool:
    """Decode both parts into arrays of images of this shape; True if it is grey and an image is in colour."""
    for name, pictures in (("images", encoded.images), ("test_images", encoded.test_images)):
        target, count = folder / f"{name}.npy", len(pictures)
        needed, free = count * int(np.prod(shape)), shutil.disk_usage(folder).free
        if needed > free:  # writing to a mapped file on a full disk would kill the process
            raise OSError(f"{needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free")
        open_memmap(target, mode="w+", dtype=np.uint8, shape=(count, *shape))
        workers = cores() if count >= PARALLEL_FROM else 1
        edges = [count * worker // workers for worker in range(workers + 1)]
        jobs = [(pictures, target, start, stop) for start, stop in pairwise(edges)]
        with ThreadPoolExecutor(workers) as pool:
            if any(map(_fill, jobs) if workers == 1 else pool.map(_fill_in_process, jobs)):
                return True
    return False


def _fill(job: Job) -> bool:
    """Decode the images from `start` up to `stop` into a file's array; True if it is grey and an image is in colour."""
    pictures, target, start, stop = job
    array = open_memmap(target, mode="r+")
    for row, (place, pixels) in enumerate(decode(pictures.read(start, stop)), start):
        if pixels.shape[1:] != array.shape[2:]:
            sizes = ["{1} x {0}".format(*shape) for shape in (pixels.shape[1:], array.shape[2:])]
            raise InputError(
                f"{place}: the image is {sizes[0]} pixels, the first one {sizes[1]}; bring all to one size"
            )
        if len(pixels) > array.shape[1]:
            return True
        array[row] = pixels  # a grey image among colour images is repeated in each channel
    return False


def _fill_in_process(job: Job) -> bool:
    """Decode in a separate process: for small images Python code dominates, so that threads gain little.

    `multiprocessing` is not used: it would run the caller's script again unless that is guarded.
    """
    command = [sys.executable, "-P", "-c", "from fedeas.data.cache import _serve; _serve()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    done = subprocess.run(command, input=pickle.dumps(job), capture_output=True, env=environment, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InputError(f"decoding stopped with code {done.returncode} ({last or 'no message'}); try again")
    found = pickle.loads(done.stdout)
    if isinstance(found, InputError):
        raise found
    return bool(found)


def _serve() -> None:
    """The main function of the process: read a job from standard input, write the answer or the error to the output."""
    try:
        found: bool | InputError = _fill(pickle.load(sys.stdin.buffer))
    except InputError as error:
        found = error
    pickle.dump(found, sys.stdout.buffer)


def _open(folder: Path, name: str, source: str) -> Dataset | None:
    """The dataset in the folder, or None if it is missing, incomplete, damaged or of another source."""
    try:
        content = read_record(folder / MANIFEST)
        if content["source"] != source:
            return None
        # All bytes are checked each time: CIFAR-10's 184 MB take 0.2 s, and a changed image that nobody noticed would
        # make all later results wrong.
        for array, entry in content["arrays"].items():
            if _file_checksum(folder / f"{array}.npy") != entry["sha256"]:
                return None
        images, test_images = (np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("images", "test_images"))
        labels, test_labels = (frozen(np.load(folder / f"{part}.npy")) for part in ("labels", "test_labels"))
        notes = notes_on_repeated(content["repeated"], len(test_labels))
        return Dataset(name, images, labels, test_images, test_labels, tuple(content["classes"]), notes=notes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
