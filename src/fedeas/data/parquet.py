"""Image datasets as Parquet files in the layout of the Hugging Face Hub: ``train-*.parquet``, ``test-*.parquet``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray, bytes_of_parquet
from fedeas.core.errors import InputError
from fedeas.core.records import check_unpacked, checked_file, files_below, is_there, unreadable
from fedeas.data.cache import Encoded, load_decoded
from fedeas.data.dataset import (
    PART_NAMES,
    Dataset,
    Part,
    checked_classes,
    checked_labels,
    numbers_upto,
)

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")
BATCH_ROWS, BATCH_BYTES = 256, 2**30

Features = dict[str, dict[str, Any]]
"""What the Hub's metadata say of each column."""


@dataclass(frozen=True)
class ParquetColumn:
    """Images in a column of Parquet files, as structs of bytes and path."""

    paths: tuple[Path, ...]
    column: str
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """The place of each image, for messages, and its bytes; reads only the row groups that hold them."""
        import pyarrow.parquet as pq

        before = 0  # images in earlier files
        for path in self.paths:
            with _reading(path):
                file = pq.ParquetFile(path)
                sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
                ends = np.cumsum([before, *sizes]).tolist()
                groups = [group for group, (first, end) in enumerate(pairwise(ends)) if first < stop and start < end]
                if groups:
                    row = ends[groups[0]]
                    largest = max(file.metadata.row_group(group).total_byte_size for group in groups)  # of an image
                    rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, largest)))
                    for batch in file.iter_batches(rows, row_groups=groups, columns=[self.column]):
                        for data in batch.column(self.column).field("bytes").to_pylist():
                            if start <= row < stop:
                                yield f"{path}: row {row - before + 1:,}", data or b""
                            row += 1
                before = ends[-1]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa

    checked_file(path)
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError) as error:
        raise unreadable(path, error, " as Parquet", "fetch it again") from None


@dataclass(frozen=True)
class ParquetSource:
    """A dataset's folder of Parquet files, or one file if it holds one part."""

    name: str
    base: Path

    def whole(self) -> Dataset:
        """Both parts."""
        train, test = map(self._files, PART_NAMES)
        if not train or not test:
            raise self._missing("test" if train else "train")

        return load_decoded(self.name, self.name, self.base, [*train, *test], lambda: read_parquet(train, test))

    def part(self, part: Part) -> Dataset:
        """One part alone, in the place of the training part: all files if no name of a file or folder tells parts."""
        base, given = self.base, self._given
        words = [word.lower() for path in given for word in path.relative_to(base).parts]
        # Several files may also tell it in a way that is not read, such as training-0.parquet.
        unread = len(given) > 1 and any(word.startswith(("train", "test", "val")) for word in words)
        files = self._files(part)
        if not files and (unread or not given or any(map(self._files, PART_NAMES))):
            raise self._missing(part)
        files = files or given

        data = load_decoded(self.name, str(base.resolve()), base, files, lambda: read_parquet(files, []), one_part=True)
        return replace(data, has_class_names=_Columns.of(files[0]).classes is not None)

    def has_training_part(self) -> bool:
        """Whether there are files of a training part."""
        return bool(self._files("train"))

    @cached_property
    def _given(self) -> list[Path]:
        if not is_there(self.base):
            raise InputError(f"{self.base}: no such file or folder")
        found = files_below(self.base) if self.base.is_dir() else [self.base]
        return [path for path in found if path == self.base or path.suffix == ".parquet"]

    def _files(self, part: Part) -> list[Path]:
        """The files whose names begin with one of the part's; they must be complete and of one configuration."""
        matching = ([path for path in self._given if re.match(rf"{name}[-.]", path.name)] for name in PART_NAMES[part])
        files = next(filter(None, matching), [])
        folders = sorted({path.relative_to(self.base).parent.as_posix() for path in files})
        if len(folders) > 1:
            where = ", ".join(folders)
            raise InputError(f"{self.base}: {part} files in several folders ({where}); keep one (root, --data-root)")
        for path in files:
            announced = re.search(r"-of-(\d+)", path.name)
            if announced and int(announced[1]) != len(files):
                raise InputError(
                    f"{path}: one of {int(announced[1])} files, but {len(files)} are there; fetch them again"
                )
        return files

    def _missing(self, part: Part) -> InputError:
        announced = f"{part}-00000-of-00001.parquet"
        return InputError(f"{self.base}: no {part} split; there must be a file such as {announced}")


def read_parquet(train: list[Path], test: list[Path]) -> Encoded:
    """Labels of both parts, and readers of their images; the test part may be empty."""
    columns = _Columns.of(train[0])
    for path in (*train[1:], *test):
        others = _class_names(_schema(path)[1], columns.label, path)
        if others not in (columns.classes, None):
            differ = f"its classes or their order differ from those of {train[0]}"
            raise InputError(f"{path}: {differ}; give all files the same")
    pictures, labels = _read_split(train, columns)
    columns = columns._replace(classes=columns.classes or numbers_upto(labels))
    return Encoded(pictures, labels, *_read_split(test, columns), columns.classes or ())


def _schema(path: Path) -> tuple[Any, Features]:
    """The columns of a file, and what the Hub's metadata say of them."""
    import pyarrow.parquet as pq

    with _reading(path):
        about = pq.read_metadata(path)
        check_unpacked(path, bytes_of_parquet(about))
        schema = about.schema.to_arrow_schema()
        metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata.get("info", {}).get("features", {})
        return schema, {name: about for name, about in features.items() if isinstance(about, dict)}


def _class_names(features: Features, label: str, path: Path) -> tuple[str, ...] | None:
    names = features.get(label, {}).get("names")
    return checked_classes(str(path), names) if names and isinstance(names, list) else None


class _Columns(NamedTuple):
    """The columns of images and labels, and the names of the classes if there are any."""

    image: str
    label: str
    classes: tuple[str, ...] | None

    @staticmethod
    def of(path: Path) -> _Columns:
        """The columns of a file."""
        import pyarrow as pa

        schema, features = _schema(path)
        structs = [column for column in schema if pa.types.is_struct(column.type)]
        images = [column.name for column in structs if column.type.get_field_index("bytes") >= 0]
        known = [name for name in IMAGE_COLUMNS if name in images]
        announced = [name for name in schema.names if features.get(name, {}).get("_type") == "ClassLabel"]
        labels = [name for name in LABEL_COLUMNS if name in schema.names][:1] or announced
        pictures = known[:1] or images
        if len(labels) != 1 or len(pictures) != 1:
            needed = "a column of images (structs of bytes and path) and one of labels; call them image and label"
            raise InputError(f"{path}: columns {', '.join(schema.names)}; there must be {needed}")
        return _Columns(pictures[0], labels[0], _class_names(features, labels[0], path))


def _read_split(files: list[Path], columns: _Columns) -> tuple[ParquetColumn, IntArray]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    read = [np.zeros(0, np.int64)]
    for path in files:
        with _reading(path):
            file = pq.ParquetFile(path)
            if pa.types.is_integer(file.schema_arrow.field(columns.label).type):
                values = file.read([columns.label]).column(0)
            else:  # one is enough to refuse them; one long text may be there often
                values = next(file.iter_batches(1, columns=[columns.label])).column(0)
        read.append(checked_labels(str(path), values.to_numpy(zero_copy_only=False), columns.classes))
    labels = np.concatenate(read)
    return ParquetColumn(tuple(files), columns.image, len(labels)), labels
