"""Image datasets as Parquet files in the layout of the Hugging Face Hub: ``train-*.parquet``, ``test-*.parquet``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.records import checked_file, unreadable
from fedeas.data.cache import Decoded, Encoded, fingerprint, load_decoded
from fedeas.data.checks import check_parts, checked_classes, checked_labels, notes_on_repeated, numbers_upto
from fedeas.data.dataset import Dataset, Part
from fedeas.data.folders import TEST_NAMES

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")
BATCH_ROWS = 256

Features = dict[str, dict[str, Any]]
"""What the Hub's metadata say of each column."""


@dataclass(frozen=True)
class ParquetColumn:
    """Images in a column of Parquet files, as structs of bytes and path."""

    paths: tuple[Path, ...]
    rows: tuple[int, ...]
    column: str

    def __len__(self) -> int:
        return sum(self.rows)

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """The place of each image, for messages, and its bytes; reads only the row groups that hold them."""
        import pyarrow.parquet as pq

        for path, rows in zip(self.paths, self.rows, strict=True):
            with _reading(path):
                file = pq.ParquetFile(path)
                sizes = np.array([file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)], int)
                ends = np.cumsum(sizes)
                groups = np.flatnonzero((ends > start) & (ends - sizes < stop)).tolist()
                row = int((ends - sizes)[groups[0]]) if groups else 0
                batches = file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[self.column]) if groups else ()
                for batch in batches:
                    for data in batch.column(self.column).field("bytes").to_pylist():
                        if start <= row < stop:
                            yield f"{path}: row {row + 1:,}", data or b""
                        row += 1
            start, stop = start - rows, stop - rows


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa

    checked_file(path)
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise unreadable(path, error, " as Parquet", "fetch it again") from None


@dataclass(frozen=True)
class ParquetSource:
    """A dataset's folder of Parquet files, or one file if it holds one part."""

    name: str
    base: Path

    def whole(self) -> Dataset:
        """Both parts."""
        base = self.base
        if not base.is_dir():
            raise InputError(f"{base}: no such folder; give one that holds train-*.parquet and test-*.parquet")
        found = sorted(base.rglob("*.parquet"))
        train, test = split_files(base, found, "train"), files_for_testing(base, found)
        if not train or not test:
            missing = "test" if train else "train"
            announced = f"{missing}-00000-of-00001.parquet"
            raise InputError(f"{base}: no {missing} split; there must be a file such as {announced}")

        def read() -> Encoded:
            encoded = read_parquet(train, test)
            check_parts(str(base), encoded.labels, encoded.test_labels, encoded.classes)
            return encoded

        decoded = load_decoded(self.name, fingerprint(self.name, base, [*train, *test]), read)
        return Dataset(self.name, *decoded.parts, notes=notes_on_repeated(decoded.repeated, len(decoded.test_labels)))

    def part(self, part: Part) -> Decoded:
        """One part alone, in the place of the training part."""
        folder, files = self._files(part)

        def read() -> Encoded:
            encoded = read_parquet(files, [])
            if not len(encoded.labels):
                raise InputError(f"{self.base}: holds no images; add some")
            return encoded

        return load_decoded(self.name, fingerprint(f"{folder.resolve()} one part", folder, files), read)

    def has_training_part(self) -> bool:
        """Whether there are files of a training part."""
        return bool(split_files(*self._all_files(), "train"))

    def has_class_names(self) -> bool:
        """Whether the classes have names, and not numbers alone."""
        _, (first, *_) = self._files("train")
        schema, features = _schema(first)
        return _class_names(features, _label_column(schema, features, first), first) is not None

    def _files(self, part: Part) -> tuple[Path, list[Path]]:
        """A folder and its Parquet files of one part; all of them if neither files nor folders are named for parts."""
        folder, found = self._all_files()
        files = split_files(folder, found, part) if part == "train" else files_for_testing(folder, found)
        if files:
            return folder, files
        if len(found) == 1:
            names_parts = any(split_files(folder, found, each) for each in ("train", *TEST_NAMES))
        else:  # also in a way that is not read, such as training-0.parquet
            words = (word for path in found for word in path.relative_to(folder).parts)
            names_parts = any(word.lower().startswith(("train", "test", "val")) for word in words)
        if names_parts or not found:
            remedy = f"give them names such as {part}-0.parquet"
            raise InputError(f"{self.base}: no Parquet files of a {part} part; {remedy}")
        return folder, found

    def _all_files(self) -> tuple[Path, list[Path]]:
        """A folder and the Parquet files below it; for one file, its own folder."""
        base = self.base
        if not base.exists():
            raise InputError(f"{base}: no such file or folder")
        return (base, sorted(base.rglob("*.parquet"))) if base.is_dir() else (base.parent, [base])


def split_files(base: Path, found: Sequence[Path], split: str) -> list[Path]:
    """The files whose names begin with the split's; they must be complete and of one configuration."""
    files = [path for path in found if re.match(rf"{split}[-.]", path.name)]
    folders = sorted({path.parent.relative_to(base).as_posix() for path in files})
    if len(folders) > 1:
        raise InputError(
            f"{base}: {split} files in several folders ({', '.join(folders)}); keep one (root, --data-root)"
        )
    for path in files:
        announced = re.search(r"-of-(\d+)", path.name)
        if announced and int(announced[1]) != len(files):
            raise InputError(f"{path}: one of {int(announced[1])} files, but {len(files)} are there; fetch them again")
    return files


def files_for_testing(base: Path, found: Sequence[Path]) -> list[Path]:
    """The files of the test part, which may have another name; none if there is no such part."""
    return next((files for part in TEST_NAMES if (files := split_files(base, found, part))), [])


def read_parquet(train: list[Path], test: list[Path]) -> Encoded:
    """Labels of both parts, and readers of their images; the test part may be empty."""
    schema, features = _schema(train[0])
    image, label = _image_column(schema, train[0]), _label_column(schema, features, train[0])
    classes = _class_names(features, label, train[0])
    for path in (*train[1:], *test):
        others = _class_names(_schema(path)[1], label, path)
        if others not in (classes, None):
            raise InputError(
                f"{path}: its classes or their order differ from those of {train[0]}; give all files the same"
            )
    pictures, labels = _read_split(train, image, label, classes)
    classes = classes or numbers_upto(labels)
    test_pictures, test_labels = _read_split(test, image, label, classes)
    return Encoded(pictures, labels, test_pictures, test_labels, classes)


def _schema(path: Path) -> tuple[Any, Features]:
    """The columns of a file, and what the Hub's metadata say of them."""
    import pyarrow.parquet as pq

    with _reading(path):
        schema = pq.read_schema(path)
        metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    try:
        features = metadata.get("info", {}).get("features", {})
        return schema, {name: about for name, about in features.items() if isinstance(about, dict)}
    except AttributeError:
        raise InputError(f"{path}: the metadata under huggingface cannot be read; write the file again") from None


def _class_names(features: Features, label: str, path: Path) -> tuple[str, ...] | None:
    names = features.get(label, {}).get("names")
    return checked_classes(str(path), names) if names and isinstance(names, list) else None


def _read_split(
    files: list[Path], image: str, label: str, classes: tuple[str, ...] | None
) -> tuple[ParquetColumn, IntArray]:
    import pyarrow.parquet as pq

    labels = [np.zeros(0, np.int64)]
    for path in files:
        with _reading(path):
            values = pq.read_table(path, columns=[label]).column(0)
        labels.append(checked_labels(str(path), values.to_numpy(), classes))
    return ParquetColumn(tuple(files), tuple(map(len, labels[1:])), image), np.concatenate(labels)


def _image_column(schema: Any, path: Path) -> str:
    import pyarrow as pa

    structs = [column for column in schema if pa.types.is_struct(column.type)]
    found = [column.name for column in structs if column.type.get_field_index("bytes") >= 0]
    if not found:
        raise InputError(f"{path}: no column of images (structs of bytes and path) among {', '.join(schema.names)}")
    known = [name for name in IMAGE_COLUMNS if name in found]
    if len(found) > 1 and not known:
        raise InputError(f"{path}: several columns of images, {', '.join(found)}; call one of them image")
    return (known or found)[0]


def _label_column(schema: Any, features: Features, path: Path) -> str:
    announced = [name for name in schema.names if features.get(name, {}).get("_type") == "ClassLabel"]
    found = [name for name in LABEL_COLUMNS if name in schema.names] or announced
    if not found or (len(found) > 1 and found[0] not in LABEL_COLUMNS):
        raise InputError(f"{path}: no single column of labels among {', '.join(schema.names)}; call it label")
    return found[0]
