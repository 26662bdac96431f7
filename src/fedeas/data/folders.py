"""Find the images of a folder: by class, or by client and class, with a test part or without.

These trees are read; ``train`` and ``test`` may hold either of the first two::

    DIR/class/*.png            DIR/client/class/*.png            DIR/train/...   DIR/test/...

Without a test part a share of each class (of each client) is set aside for testing.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from fedeas.core.arrays import IntArray, frozen_integers
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import in_one_form, printable
from fedeas.core.records import checked_file, read_bytes, unreadable
from fedeas.data.cache import Encoded, load_decoded
from fedeas.data.dataset import PART_NAMES, Dataset, Part, set_aside

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm"}
UNREAD_SUFFIXES = {".avif", ".dcm", ".dng", ".heic", ".heif", ".j2k", ".jfif", ".jp2", ".jxl", ".tga"}
"""Images, too, but files with these suffixes are not read."""

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


@dataclass(frozen=True)
class FolderSource:
    """A dataset's folder of images."""

    name: str
    base: Path

    def whole(self) -> Dataset:
        """Both parts; without a test part, a share of each class is for testing."""
        (found, folders), base, test_name = _below(self.base), self.base, self._folder_of("test")
        if test_name is not None and not self.has_training_part():
            raise InputError(f"{base}: holds {test_name} and no folder train; {TREES}")
        tree, notes = _Tree(base, self._folder_of("train"), found, folders), list[str]()
        classes, clients = tree.classes, tree.clients()
        if test_name is None:
            hashes = [hashlib.sha256(path.name.encode()).hexdigest() for path in tree.files]
            is_test = set_aside(base, [path.parent for path in tree.files], hashes)
            train, test = (tuple(compress(tree.files, part)) for part in (~is_test, is_test))
            whose = "class" if clients is None else "client's images of each class"
            share = f"{len(test):,} of {len(tree.files):,} images, a fifth of each {whose}"
            notes.append(f"no test part: {share}, are for testing")
        else:
            tested = _Tree(base, test_name, found, folders)
            train, test = tree.files, tested.files
            if unknown := sorted({*tested.classes} - {*classes}):
                where = f"{tested.folder}: class {unknown[0]!r}"
                raise InputError(f"{where} is not in train; add it there or remove it here")
        # The folder's path belongs to its identity, since files of two folders can agree in names, sizes and times.
        # Its classes do, too, since a class without images has no file; so does which images are for testing.
        names, test_names = (tuple(path.relative_to(base).as_posix() for path in part) for part in (train, test))
        identity = json.dumps([str(base.resolve()), classes, *([test_names] if test_name is None else [])])
        files = [*train, *test]
        data = load_decoded(self.name, identity, base, files, lambda: _encoded(classes, train, test))
        if unused := sorted({*found} - {*files}):
            example = unused[0].relative_to(base).as_posix()
            remedy = "convert them to PNG, or move them into the parts for training and testing"
            notes.append(f"{base}: {len(unused):,} images such as {example} are not used; {remedy}")
        owners = None if clients is None else _places(map(_client_of, train), clients)
        return replace(
            data, clients=clients, owners=owners, sample_names=names, test_names=test_names, notes=(*notes, *data.notes)
        )

    def part(self, part: Part) -> Dataset:
        """One part alone, in the place of the training part; a folder without parts is one part."""
        base, (images, folders) = self.base, _below(self.base)
        found, other = self._folder_of(part), self._folder_of("train") or self._folder_of("test")
        if found is None and other is not None:
            remedy = f"add it, or put the class folders into {base}"
            raise InputError(f"{base}: holds {other} and no folder {part}; {remedy}")
        tree = _Tree(base, found, images, folders)
        identity = json.dumps([str(base.resolve()), tree.classes, "one part"])
        return load_decoded(
            self.name, identity, base, tree.files, lambda: _encoded(tree.classes, tree.files, ()), one_part=True
        )

    def has_training_part(self) -> bool:
        """Whether there is a folder of training images."""
        return self._folder_of("train") is not None

    def _folder_of(self, part: Part) -> str | None:
        """The name of the folder of a part, if there is one."""
        return next((name for name in PART_NAMES[part] if (self.base / name).is_dir()), None)


class _Tree:
    """The images of the folder `base`, or of a part in it: by class, or by client and class; refused without images."""

    def __init__(self, base: Path, part: str | None, found: Sequence[Path], folders: Sequence[Path]) -> None:
        self.folder, self.all_folders = base / (part or ""), folders
        by_depth: dict[int, list[Path]] = {}
        for path in found:
            if path.is_relative_to(self.folder) and path.suffix.lower() in IMAGE_SUFFIXES:
                by_depth.setdefault(len(path.relative_to(self.folder).parts) - 1, []).append(path)
        if len(by_depth) > 1:
            one, other = (by_depth[depth] for depth in sorted(by_depth)[:2])
            shown = [f"{found[0].relative_to(base).as_posix()} (one of {len(found):,})" for found in (one, other)]
            raise InputError(f"{base}: images at two depths, {shown[0]} and {shown[1]}; {TREES}")
        self.depth = 2 if 2 in by_depth else 1
        self.files = tuple(by_depth.get(self.depth, ()))
        self.classes = tuple(sorted({name_of(path) for path in self._folders(self.depth)}))
        if not self.files:
            raise InputError(f"{self.folder}: no images in class folders; {TREES}")

    def clients(self) -> tuple[str, ...] | None:
        """The client folders, each of which must have images; None if there are none."""
        if self.depth == 1:
            return None
        found = set(map(_client_of, self.files))
        empty = next((path for path in self._folders(1) if name_of(path) not in found), None)
        if empty is not None:
            raise InputError(f"{empty}: a client without images; add some or remove the folder")
        return tuple(sorted(found))

    def _folders(self, depth: int) -> list[Path]:
        """The folders so deep below."""
        parts = len(self.folder.parts) + depth
        return [path for path in self.all_folders if len(path.parts) == parts and path.is_relative_to(self.folder)]


def name_of(folder: Path) -> str:
    """The name of a class or client, which is the name of its folder."""
    return in_one_form(folder.name)


def _client_of(image: Path) -> str:
    return name_of(image.parent.parent)


def _places(names: Iterable[str], among: Sequence[str]) -> IntArray:
    number = {name: place for place, name in enumerate(among)}
    return frozen_integers([number[name] for name in names])


def _encoded(classes: tuple[str, ...], train: tuple[Path, ...], test: tuple[Path, ...]) -> Encoded:
    labels, test_labels = (_places((name_of(image.parent) for image in part), classes) for part in (train, test))
    return Encoded(ImageFiles(train), labels, ImageFiles(test), test_labels, classes)


def _below(base: Path) -> tuple[list[Path], list[Path]]:
    """The images below a folder, also of formats that are not read, and the folders; hidden ones are left out.

    Links are followed, but no folder is read twice.
    """
    if not base.is_dir():
        where = "" if base.is_absolute() else f" in {Path.cwd()}; paths start where the command is run"
        raise InputError(f"{base}: no such folder{where}")
    images, folders, waiting = list[Path](), list[Path](), [base]
    visited = {(about.st_dev, about.st_ino): path for path in base.resolve().parents for about in [path.stat()]}
    while waiting:
        path = folder = waiting.pop()
        try:
            about = folder.stat()
            if (first := visited.setdefault((about.st_dev, about.st_ino), folder)) != folder:
                raise InputError(f"{printable(folder)}: the same folder as {printable(first)}; remove the link")
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True):
                if entry.name.startswith("."):
                    continue
                path, is_folder = folder / entry.name, entry.is_dir()
                if entry.is_symlink():
                    path.stat()  # fails for a link to nothing
                is_image = path.suffix.lower() in IMAGE_SUFFIXES | UNREAD_SUFFIXES
                folders += [path] * is_folder
                waiting += [path] * is_folder
                images += [path] * is_image  # a folder named like an image, too: reading it says what is wrong
                if (is_folder or is_image) and os.fsencode(entry.name).decode(errors="replace") != entry.name:
                    raise InputError(f"{printable(path)}: its name is not UTF-8; rename it")
        except OSError as error:
            raise unreadable(path, error) from None
    return sorted(images), sorted(folders)
