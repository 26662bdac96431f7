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
from fedeas.core.records import checked_file
from fedeas.data.cache import Encoded
from fedeas.data.checks import checked_classes, checked_labels, numbers_upto
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
        """The place of each image, for messages, and its bytes."""
        first = 0
        for path, rows in zip(self.paths, self.rows, strict=True):
            for row, data in _column_values(path, self.column, start - first, stop - first):
                yield f"{path}: row {row + 1:,}", data or b""
            first += rows


def _column_values(path: Path, column: str, start: int, stop: int) -> Iterator[tuple[int, bytes | None]]:
    """Rows from `start` up to `stop` of one file; reads only the row groups that hold them."""
    import pyarrow.parquet as pq

    with _reading(path):
        file = pq.ParquetFile(path)
        sizes = np.array([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)], np.int64)
        ends = np.cumsum(sizes)
        groups = np.flatnonzero((ends > start) & (ends - sizes < stop)).tolist()
        row = int((ends - sizes)[groups[0]]) if groups else 0
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[column]) if groups else ():
            for data in batch.column(column).field("bytes").to_pylist():
                if start <= row < stop:
                    yield row, data
                row += 1


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa

    checked_file(path)
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{path}: cannot be read as Parquet ({reason}); fetch it again") from None


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


def has_class_names(path: Path) -> bool:
    """Whether a file names its classes; otherwise it has their numbers alone."""
    schema, features = _schema(path)
    return _class_names(features, _label_column(schema, features, path), path) is not None


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
