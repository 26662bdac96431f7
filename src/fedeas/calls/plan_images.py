"""The images of a plan: the generator that makes them, and files with a manifest that a later call completes.

``DIR/manifest.csv`` has a row for each image, written when all images of its client are there. ``DIR/generation.json``
says which plan and generator the folder belongs to. Images wait in ``DIR/.images`` until their client is complete.
"""

import csv
import hashlib
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.arrays import IntArray, digest_of_arrays
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, in_place, make_folder, remove_leftovers, writing, written_whole
from fedeas.core.foreign_text import first_of, for_csv
from fedeas.core.locks import locked
from fedeas.core.records import (
    checked_archive,
    is_there,
    read_arrays,
    read_bytes,
    read_record,
    unreadable,
    write_arrays,
    write_record,
)
from fedeas.data.sources import load_dataset
from fedeas.generators.bank import Bank
from fedeas.generators.base import Generator, Images, Shape, checked_shape, described, number_of, plan_addresses
from fedeas.generators.kinds import AnyGenerator, GeneratorContext, generator_from, parse_generator
from fedeas.planning.counts import Allocation

MANIFEST, HEADER, WAITING = "manifest.csv", "generation.json", ".images"
PNG_END = b"IEND\xaeB`\x82"
COLUMNS = ("client", "class", "index", "file", "sha256", "generator")

OnImages = Callable[[int, int], None]
"""Called with the number of images done and of images wanted."""


@dataclass(frozen=True, eq=False)
class PlanSource:
    """A generator for the images of a plan."""

    plan: Allocation
    generator: Generator
    classes: tuple[str, ...]
    """Names of the generator's classes, by label."""
    columns: IntArray
    """The generator's label of each class of the plan."""
    spec: str
    dataset: str | None = None
    """The name of the dataset that the images imitate, if one was given."""

    def addresses(self, row: int) -> tuple[IntArray, IntArray]:
        """Labels and indices of a client's images, the same as in a run in which it has this number."""
        wanted = np.zeros(self.generator.num_classes, dtype=np.int64)
        wanted[self.columns] = self.plan.n[row]
        return plan_addresses(row, wanted)


def source_for(
    plan: Allocation,
    generator: AnyGenerator,
    dataset: str | None = None,
    data_root: PathLike | None = None,
    shape: Shape | None = None,
    device: str = "auto",
) -> PlanSource:
    """The generator, made ready; a spec such as ``gaussian`` needs the dataset that it is fitted to."""
    settings, where = None, "cpu"
    if isinstance(generator, str):
        from fedeas.core.devices import chosen_device  # loads torch

        settings = parse_generator(generator)
        settings.check_plan(plan.n)
        where = str(chosen_device(device))
    context = None  # what is known of the images: from the dataset, the weights, or the shape alone
    if dataset is not None:
        data = load_dataset(dataset, data_root)
        context = GeneratorContext(data.name, data.images, data.labels, data.classes, device=where)
    elif settings is None or not settings.needs_data():
        form = settings.known_form() if settings is not None else None
        if form is None and shape is not None:
            form = plan.class_names, checked_shape(shape)
        if form is not None:
            context = GeneratorContext.without_images("the plan", *form, protocol="paper", device=where)

    def known() -> GeneratorContext:
        if context is None:
            name = generator if isinstance(generator, str) else getattr(generator, "__name__", "the function")
            raise InputError(
                f"generator {name} needs to know the images; give a dataset (--dataset folder:DIR, or in Python "
                "dataset='folder:DIR'), or for a function of your own a shape (--shape 3,32,32, or shape=(3, 32, 32))"
            )
        return context

    ready = generator_from(generator, known)
    spec = generator if isinstance(generator, str) else described(ready)
    classes = plan.classes or () if context is None else context.classes
    if context is None and len(classes) != ready.num_classes:
        classes = tuple(map(str, range(ready.num_classes)))
    return PlanSource(plan, ready, classes, _matched(plan, classes), spec, dataset)


def _matched(plan: Allocation, classes: tuple[str, ...]) -> IntArray:
    """The generator's label of each class of the plan: by name, or by position if one side has only numbers."""
    names, places = plan.classes, {name: place for place, name in enumerate(classes)}
    if names is not None and {*names} <= {*places}:
        return np.array([places[name] for name in names])
    numbered = names is None or _only_numbers(names) or _only_numbers(classes)
    if numbered and plan.n.shape[1] == len(classes):
        return np.arange(len(classes))
    missing = next((name for name in names or () if name not in places), None)
    shown = f"; class {missing!r} of the plan is none of {first_of(classes)}" if missing else ""
    raise InputError(
        f"the plan has {plan.n.shape[1]} classes, the generator {len(classes)}{shown}; plan with its classes"
    )


def _only_numbers(names: tuple[str, ...]) -> bool:
    return names == tuple(map(str, range(len(names))))


class ImageFormat(StrEnum):
    """How images are written: PNG files in client/class folders, or one file for each client."""

    FOLDER = "folder"
    PARQUET = "parquet"
    NPZ = "npz"


class Written(NamedTuple):
    """How many images there are now, and how many of them were made by this call."""

    images: int
    made: int
    manifest: Path


def write_images(
    source: PlanSource,
    out: PathLike,
    form: ImageFormat = ImageFormat.FOLDER,
    client: int | str | None = None,
    bank: PathLike | None = None,
    on_images: OnImages | None = None,
) -> Written:
    """Write the images of a plan, client by client; those that the folder has already are not made again."""
    folder = Path(out)
    check_folder(folder, source.dataset)
    make_folder(folder)
    with locked(folder / ".lock", f"{folder}: another process is writing here; wait for it"):
        about = {
            "generator": source.spec,
            "fingerprint": source.generator.fingerprint,
            "plan": digest_of_arrays([source.plan.n, source.columns]),
            "clients": source.plan.clients,
            "format": str(form),
        }
        if not is_there(folder / HEADER):
            write_record(folder / HEADER, about)
        before = read_record(folder / HEADER)
        for key, what in (("fingerprint", "generator"), ("plan", "plan"), ("format", "format")):
            if before.get(key) != about[key]:
                raise InputError(f"{folder}: holds images of another {what}; choose another folder (--out)")
        rows = [*range(len(source.plan.n))] if client is None else [source.plan.row_of(client)]
        done = _complete_clients(folder, source, rows, form)
        wanted = int(source.plan.per_client[rows].sum())
        if bank is None:
            make_folder(folder / WAITING, folder)
        ready: Any = Bank(bank or folder / WAITING).of(source.generator)
        count = sum(int(source.plan.per_client[row]) for row in rows if row in done)
        report = on_images or (lambda images, of: None)
        report(count, wanted)
        names = _file_names(source.plan.client_names)
        for row in rows:
            if row not in done and source.plan.per_client[row]:
                for part in _write_client(folder, source, ready, row, names[row], form):
                    count += part
                    report(count, wanted)
        if bank is None:
            shutil.rmtree(folder / WAITING, ignore_errors=True)
    return Written(count, ready.made, folder / MANIFEST)


def check_folder(folder: Path, dataset: str | None) -> None:
    """Refuse a folder in which images would join or replace a user's own files."""
    kind, _, place = (dataset or "").partition(":")
    if kind in ("folder", "parquet") and place and folder.resolve().is_relative_to(Path(place).resolve()):
        raise InputError(f"{folder}: belongs to the dataset {dataset}; choose a folder outside of it (--out)")
    with writing(folder):
        if not folder.is_dir() or (folder / HEADER).exists():
            return
        # Hidden files are no matter: a kill may have left a lock and a temporary file, and images are never hidden.
        foreign = min((entry.name for entry in folder.iterdir() if not entry.name.startswith(".")), default="")
    if foreign:
        raise InputError(
            f"{folder}: holds other files already, such as {foreign!r}; choose an empty or a new folder (--out)"
        )


def _files(source: PlanSource, row: int, name: str, form: ImageFormat) -> list[str]:
    """The file of each image of a client, whose files or folder have this name."""
    labels, index = source.addresses(row)
    if form is not ImageFormat.FOLDER:
        return [f"{name}.{form}"] * labels.size
    folders = _file_names(source.classes)
    return [f"{name}/{folders[at]}/{number:06d}.png" for at, number in zip(labels, number_of(index), strict=True)]


def _rows(source: PlanSource, row: int, files: Sequence[str], images: Iterable[Images]) -> list[list[str]]:
    """The rows of the manifest for the images of a client."""
    maker, client, rows = source.generator.fingerprint[:16], for_csv(source.plan.client_name(row)), []
    for image, label, index, file in zip(images, *source.addresses(row), files, strict=True):
        digest = hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()
        name, number = for_csv(source.classes[label]), str(number_of(index))
        rows.append([client, name, number, for_csv(file), digest, maker])
    return rows


def _write_client(
    folder: Path, source: PlanSource, ready: Any, row: int, name: str, form: ImageFormat
) -> Iterator[int]:
    """Make and write the images of one client, then list them; yields the number of images after each batch."""
    labels, index = source.addresses(row)
    images, numbers = np.empty((labels.size, *ready.shape), dtype=np.uint8), number_of(index)
    for start in range(0, labels.size, ready.batch_size):
        batch = slice(start, start + ready.batch_size)
        images[batch] = ready.sample(labels[batch], index[batch])
        yield len(images[batch])
    files = _files(source, row, name, form)
    if form is ImageFormat.NPZ:
        classes = np.array(source.classes)
        write_arrays(folder / files[0], images=images, labels=labels, index=numbers, classes=classes)
    elif form is ImageFormat.PARQUET:
        import pyarrow as pa
        from pyarrow import parquet

        pictures = [{"bytes": _png(image), "path": None} for image in images]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        class_names = [source.classes[label] for label in labels]
        columns = {"image": pa.array(pictures, kind), "label": labels, "class": class_names, "index": numbers}
        with written_whole(folder / files[0]) as part:
            parquet.write_table(pa.table(columns), part)
    else:
        for place in sorted({(folder / file).parent for file in files}):
            make_folder(place, folder)
            remove_leftovers(place)
        for image, file in zip(images, files, strict=True):
            with written_whole(folder / file, flushed=False) as part:
                part.write_bytes(_png(image))
    text = io.StringIO()  # the client's rows join the manifest all at once
    csv.writer(text, lineterminator="\n").writerows(_rows(source, row, files, images))
    with writing(folder / MANIFEST), open(folder / MANIFEST, "ab", opener=in_place) as manifest:
        manifest.write(text.getvalue().encode())


def _png(image: Images) -> bytes:
    from fedeas.generators.quality.grid import picture  # loads Pillow

    file = io.BytesIO()
    picture(image).save(file, "PNG")
    return file.getvalue()


def _read_images(
    folder: Path, source: PlanSource, row: int, files: Sequence[str], form: ImageFormat
) -> Iterable[Images]:
    """The images of a client in its files; damage raises an error."""
    from fedeas.generators.quality.grid import pixels_of  # loads Pillow

    labels, index = source.addresses(row)
    path, blobs = folder / files[0], list[bytes]()
    if form is ImageFormat.NPZ:
        path.open("rb").close()  # whether it may be read
        checked_archive(path)
        images, *about = read_arrays(path, ("images", "labels", "index", "classes"))
        wanted = labels, number_of(index), np.array(source.classes)
        if not all(np.array_equal(*pair) for pair in zip(about, wanted, strict=True)):
            raise ValueError
        return list(images)
    if form is ImageFormat.PARQUET:
        from pyarrow import parquet

        with path.open("rb") as file:
            table = parquet.read_table(file).to_pydict()
        about = [table["label"], table["index"], table["class"]]
        if about != [labels.tolist(), number_of(index).tolist(), [source.classes[label] for label in labels]]:
            raise ValueError
        blobs = [cell["bytes"] for cell in table["image"]]
    found = []
    for blob in blobs or ((folder / file).read_bytes() for file in files):
        if not blob.endswith(PNG_END):
            raise ValueError
        found.append(pixels_of(blob, source.generator.shape))
    return found


def _is_intact(
    folder: Path, source: PlanSource, row: int, name: str, form: ImageFormat, lines: list[list[str]]
) -> bool:
    """Whether the images of a client are those that its lines of the manifest, and the plan, say."""
    files = _files(source, row, name, form)
    if len(lines) != len(files) or not all((folder / file).is_file() for file in {*files} if is_there(folder / file)):
        return False
    try:
        return lines == _rows(source, row, files, _read_images(folder, source, row, files, form))
    except PermissionError as error:
        raise unreadable(error.filename, error) from None
    except Exception:  # each format fails in its own ways
        return False


def _complete_clients(folder: Path, source: PlanSource, wanted: Collection[int], form: ImageFormat) -> set[int]:
    """Clients whose images are all listed and there; other rows of the manifest are removed.

    The images of those that are `wanted` are compared with their digests.
    """
    rows: dict[str, list[list[str]]] = {}
    content = read_bytes(folder / MANIFEST) if is_there(folder / MANIFEST) else b""
    with suppress(csv.Error):  # goes on with what can be read
        for row in islice(filter(None, csv.reader(io.StringIO(content.decode(errors="replace"), newline=""))), 1, None):
            rows.setdefault(row[0], []).append(row)
    names = {for_csv(name): row for row, name in enumerate(source.plan.client_names)}
    stems = _file_names(source.plan.client_names)
    done = {
        name
        for name, lines in rows.items()
        if (number := names.get(name)) is not None
        and (number not in wanted or _is_intact(folder, source, number, stems[number], form, lines))
    }
    with written_whole(folder / MANIFEST) as part, part.open("w", encoding="utf-8", newline="") as manifest:
        writer = csv.writer(manifest, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row for name in rows if name in done for row in rows[name])
    return {names[name] for name in done}


def _file_names(names: Sequence[str]) -> list[str]:
    """Names of files: without slashes and leading dots, each different from the others."""
    plain = [re.sub(r"[^\w .()+-]", "_", name).strip(". ") or "_" for name in names]
    times = Counter(plain)
    files = [f"{name}-{row}" if times[name] > 1 else name for row, name in enumerate(plain)]
    return files if len({*files}) == len(files) else _file_names(files)  # a name with a number may be another's
