"""Find the images of a folder: by class, or by client and class, with a test part or without.

These trees are read; ``train`` and ``test`` may hold either of the first two::

    DIR/class/*.png            DIR/client/class/*.png            DIR/train/...   DIR/test/...

Without a test part a share of each class (of each client) is set aside for testing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedeas.core.arrays import frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form
from fedeas.core.records import checked_file, read_bytes
from fedeas.data.cache import Decoded, Encoded, fingerprint, load_decoded
from fedeas.data.checks import check_parts, notes_on_repeated, share_of
from fedeas.data.dataset import Dataset, Part

TEST_NAMES = ("test", "validation", "valid", "val")  # the first one that exists is the test part
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm"}
UNREAD_SUFFIXES = {".avif", ".dcm", ".dng", ".heic", ".heif", ".j2k", ".jfif", ".jp2", ".jxl", ".tga"}
"""Images, too, but files with these suffixes are not read."""

DEEPEST = 7  # how many folders deep images are searched: the search would never end at a link to a folder above it
TREES = "make it class/*.png or client/class/*.png, or put such trees into the folders train and test"


@dataclass(frozen=True)
class ImageFiles:
    """Images in one file each."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """The place of each image, for messages, and its bytes."""
        for path in self.paths[start:stop]:
            checked_file(path)
            yield str(path), read_bytes(path)


class ImageTree(NamedTuple):
    """The images of a folder; each lies in a folder of its class, which may lie in a folder of its client."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]
    classes: tuple[str, ...]
    clients: tuple[str, ...] | None
    """The client folders of the training part, in order; None if there are none."""
    test_is_set_aside: bool
    notes: tuple[str, ...]
    """What a user should know."""


@dataclass(frozen=True)
class FolderSource:
    """A dataset's folder of images."""

    name: str
    base: Path

    def whole(self) -> Dataset:
        """Both parts; without a test part, a share of each class is for testing."""
        base, tree = self.base, find_images(self.base)

        def read() -> Encoded:
            labels, test_labels = (frozen_integers(labels_of(part, tree.classes)) for part in (tree.train, tree.test))
            check_parts(str(base), labels, test_labels, tree.classes)
            return Encoded(ImageFiles(tree.train), labels, ImageFiles(tree.test), test_labels, tree.classes)

        # The folder's path belongs to its identity, since files of two folders can agree in names, sizes and times.
        # Its classes do, too, since a class without images has no file; so does which images are for testing.
        train, test = (tuple(path.relative_to(base).as_posix() for path in part) for part in (tree.train, tree.test))
        aside = [test] if tree.test_is_set_aside else []
        identity = json.dumps([str(base.resolve()), tree.classes, *aside])
        decoded = load_decoded(self.name, fingerprint(identity, base, [*tree.train, *tree.test]), read)
        clients, owners = tree.clients, None
        if clients is not None:
            number = {name: row for row, name in enumerate(clients)}
            owners = frozen_integers([number[name_of(path.parent.parent)] for path in tree.train])
        return Dataset(
            self.name,
            *decoded.parts,
            clients=clients,
            owners=owners,
            sample_names=train,
            test_names=test,
            notes=(*tree.notes, *notes_on_repeated(decoded.repeated, len(tree.test))),
        )

    def part(self, part: Part) -> Decoded:
        """One part alone, in the place of the training part; a folder without parts is one part."""
        base, names = self.base, ("train",) if part == "train" else TEST_NAMES
        _check_is_there(base)
        found = next((name for name in names if (base / name).is_dir()), None)
        other = next((name for name in ("train", *TEST_NAMES) if (base / name).is_dir()), None)
        if found is None and other is not None:
            remedy = f"add it, or put the class folders into {base}"
            raise InputError(f"{base}: holds {other} and no folder {names[0]}; {remedy}")
        folder = base if found is None else base / found
        files, depth = _images_of(base, folder, _below(folder)[0])
        if not files:
            raise InputError(f"{folder}: no images in class folders; {TREES}")
        classes = _class_names(folder, depth)
        labels = frozen_integers(labels_of(files, classes))
        encoded = Encoded(ImageFiles(files), labels, ImageFiles(()), labels[:0], classes)
        identity = json.dumps([str(base.resolve()), classes, "one part"])
        return load_decoded(self.name, fingerprint(identity, base, files), lambda: encoded)

    def has_training_part(self) -> bool:
        """Whether there is a folder of training images."""
        return (self.base / "train").is_dir()

    def has_class_names(self) -> bool:
        """True: folders have names."""
        return True


def find_images(base: Path) -> ImageTree:
    """The images below a folder, by part, client and class."""
    _check_is_there(base)
    test_name = next((part for part in TEST_NAMES if (base / part).is_dir()), None)
    has_train = (base / "train").is_dir()
    if test_name is not None and not has_train:
        raise InputError(f"{base}: holds {test_name} and no folder train; {TREES}")
    part = base / "train" if has_train else base
    images, unread = _below(base)
    files, depth = _images_of(base, part, images)
    if not files and not has_train:
        raise InputError(f"{base}: no images in class folders; {TREES}")
    classes = _class_names(part, depth)
    clients = _clients(part, files) if depth == 2 else None
    if test_name is None:
        train, test = _set_aside(base, files)
        whose = "class" if clients is None else "client's images of each class"
        note = f"no test part: {len(test):,} of {len(files):,} images, a fifth of each {whose}, are for testing"
        return ImageTree(train, test, classes, clients, True, (note, *_unused(base, images, unread, files)))
    test, test_depth = _images_of(base, base / test_name, images)
    unknown = sorted({*_class_names(base / test_name, test_depth)} - {*classes})
    if unknown:
        raise InputError(f"{base / test_name}: class {unknown[0]!r} is not in train; add it there or remove it here")
    notes = tuple(_unused(base, images, unread, [*files, *test]))
    return ImageTree(files, test, classes, clients, False, notes)


def name_of(folder: Path) -> str:
    """The name of a class or client, which is the name of its folder."""
    return in_one_form(folder.name)


def labels_of(files: Iterable[Path], classes: Sequence[str]) -> list[int]:
    """The class of each image, by its place in `classes`."""
    number = {name: column for column, name in enumerate(classes)}
    return [number[name_of(path.parent)] for path in files]


def _check_is_there(base: Path) -> None:
    if not base.is_dir():
        where = "" if base.is_absolute() else f" in {Path.cwd()}; paths start where the command is run"
        raise InputError(f"{base}: no such folder{where}")


def _images_of(base: Path, part: Path, images: Sequence[Path]) -> tuple[tuple[Path, ...], int]:
    """The images of a part, and at which depth the folders of classes are: 1, or 2 below folders of clients."""
    by_depth: dict[int, list[Path]] = {}
    for path in (path for path in images if path.is_relative_to(part)):
        by_depth.setdefault(len(path.relative_to(part).parts) - 1, []).append(path)
    if len(by_depth) > 1:
        one, other = (by_depth[depth] for depth in sorted(by_depth)[:2])
        shown = [f"{found[0].relative_to(base).as_posix()} (one of {len(found):,})" for found in (one, other)]
        raise InputError(f"{base}: images at two depths, {shown[0]} and {shown[1]}; {TREES}")
    depth = 2 if 2 in by_depth else 1
    return tuple(by_depth.get(depth, ())), depth


def _below(base: Path) -> tuple[list[Path], list[Path]]:
    """The images below a folder, and those of formats that are not read; hidden files and folders are left out."""
    images: list[Path] = []
    unread: list[Path] = []
    for place, folders, files in os.walk(base, followlinks=True):
        folder = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *files):  # a folder named like an image, too: reading it says what is wrong
            suffix = Path(name).suffix.lower()
            if suffix in IMAGE_SUFFIXES and not name.startswith("."):
                images.append(folder / name)
            elif suffix in UNREAD_SUFFIXES and not name.startswith("."):
                unread.append(folder / name)
        if len(folder.relative_to(base).parts) == DEEPEST:
            folders.clear()
    return sorted(images), sorted(unread)


def _unused(base: Path, images: Sequence[Path], unread: Sequence[Path], used: Sequence[Path]) -> Iterator[str]:
    """Notes on images that are not used: of formats that are not read, or outside of train and test."""
    outside = sorted({*images} - {*used})
    for found, why in (
        (unread, "convert them to PNG"),
        (outside, "they are outside of the parts for training and testing"),
    ):
        if found:
            yield f"{base}: {len(found):,} images such as {found[0].relative_to(base).as_posix()} are not used; {why}"


def _class_names(part: Path, depth: int) -> tuple[str, ...]:
    return tuple(sorted({name_of(path) for path in _folders(part, depth)}))


def _clients(part: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """The client folders; refuse one without images."""
    found = {name_of(path.parent.parent) for path in files}
    empty = next((path for path in _folders(part, 1) if name_of(path) not in found), None)
    if empty is not None:
        raise InputError(f"{empty}: a client without images; add some or remove the folder")
    return tuple(sorted(found))


def _set_aside(base: Path, files: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Training and test images: the share of each folder, chosen by hashes of the names, so it is always the same."""
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    test: set[Path] = set()
    for members in folders.values():
        members.sort(key=lambda path: hashlib.sha256(path.name.encode()).digest())
        test.update(members[: share_of(len(members))])
    if files and not test:
        raise InputError(f"{base}: too few images to set a test part aside; add a folder test")
    return tuple(path for path in files if path not in test), tuple(path for path in files if path in test)


def _folders(part: Path, depth: int) -> list[Path]:
    """The folders so deep below a part; two in one place must not differ only in the Unicode form of their names."""
    found = sorted(path for path in part.glob("/".join(["[!.]*"] * depth)) if path.is_dir())
    first: dict[Path, Path] = {}
    for path in found:
        if first.setdefault(path.with_name(name_of(path)), path) != path:
            raise InputError(f"{path}: two folders have this name, in two forms of Unicode; move their images into one")
    return found
