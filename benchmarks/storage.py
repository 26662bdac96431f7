"""Are our files for images better than a library's? The image bank beside SQLite and LMDB, the data cache beside
Hugging Face `datasets`. Started by hand, after `pip install lmdb datasets`.

All stores of the bank keep the same digest with each image and check it when they read, and none waits for the disk.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from measure import in_fresh_process, peak_resident_bytes, save, seconds

from fedeas.data.cache import Encoded, decode, load_decoded
from fedeas.generators.slots import Disk, Header, distinct

SHAPE, CLASSES, CLIENTS, EACH, BATCH = (3, 32, 32), 10, 20, 100, 64
IMAGES = CLASSES * CLIENTS * EACH
DAMAGE = 4096  # bytes of the largest file that are overwritten with zeros


class Store(Protocol):
    """Images by class and index."""

    def write(self, labels: Any, index: Any, pixels: Any) -> None:
        """Keep these images."""

    def read(self, labels: Any, index: Any) -> int:
        """Read these images and return how many are good."""


class Slots:
    """The project's own: files of equal slots."""

    def __init__(self, folder: Path) -> None:
        self.disk = Disk(folder, Header("a" * 64, CLASSES, SHAPE, ""))
        with self.disk.filling():
            pass

    def write(self, labels: Any, index: Any, pixels: Any) -> None:
        at, inverse = distinct(labels, index)
        ordered = np.empty_like(pixels)
        ordered[inverse] = pixels
        self.disk.write(at, ordered)

    def read(self, labels: Any, index: Any) -> int:
        at, _ = distinct(labels, index)
        images = np.empty((len(at.labels), self.disk.pixels), dtype=np.uint8)
        return int(self.disk.read(at, images, np.arange(len(images))).sum())


class Sqlite:
    """One table with the address as its key."""

    def __init__(self, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "images.db", timeout=600, isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=OFF")
        columns = "label INT, number INT, content BLOB, PRIMARY KEY (label, number)"
        self.database.execute(f"CREATE TABLE IF NOT EXISTS images ({columns}) WITHOUT ROWID")

    def write(self, labels: Any, index: Any, pixels: Any) -> None:
        rows = [(label, number, _sealed(image)) for label, number, image in _rows(labels, index, pixels)]
        self.database.execute("BEGIN IMMEDIATE")
        self.database.executemany("INSERT OR REPLACE INTO images VALUES (?, ?, ?)", rows)
        self.database.execute("COMMIT")

    def read(self, labels: Any, index: Any) -> int:
        query = "SELECT content FROM images WHERE label = ? AND number = ?"
        return sum(
            _is_good(row[0])
            for at in zip(labels.tolist(), index.tolist(), strict=True)
            if (row := self.database.execute(query, at).fetchone())
        )


class Lmdb:
    """One B-tree in a memory-mapped file."""

    def __init__(self, folder: Path) -> None:
        import lmdb

        self.environment = lmdb.open(str(folder / "lmdb"), map_size=2**31, sync=False)

    def write(self, labels: Any, index: Any, pixels: Any) -> None:
        with self.environment.begin(write=True) as transaction:
            for label, number, image in _rows(labels, index, pixels):
                transaction.put(struct.pack(">qq", label, number), _sealed(image))

    def read(self, labels: Any, index: Any) -> int:
        with self.environment.begin(buffers=True) as transaction:
            keys = [struct.pack(">qq", *at) for at in zip(labels.tolist(), index.tolist(), strict=True)]
            return sum(_is_good(found) for key in keys if (found := transaction.get(key)) is not None)


STORES: dict[str, Callable[[Path], Store]] = {"own slots": Slots, "SQLite": Sqlite, "LMDB": Lmdb}


def _rows(labels: Any, index: Any, pixels: Any) -> Iterator[tuple[int, int, bytes]]:
    return ((int(label), int(number), image.tobytes()) for label, number, image in zip(labels, index, pixels))  # noqa: B905


def _sealed(image: bytes) -> bytes:
    return image + blake2b(image, digest_size=8).digest()


def _is_good(content: Any) -> bool:
    return bool(blake2b(content[:-8], digest_size=8).digest() == bytes(content[-8:]))


def addresses() -> tuple[Any, Any]:
    """All images, client after client, as a run asks for them."""
    client, label, number = (part.ravel() for part in np.indices((CLIENTS, CLASSES, EACH)))
    return label.astype(np.int64), (client.astype(np.int64) << 32) + number


def write_all(store: Store, labels: Any, index: Any) -> float:
    """Write all these images in batches; return the seconds."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, int(np.prod(SHAPE))), dtype=np.uint8)
    begun = time.perf_counter()
    for start in range(0, len(labels), BATCH):
        part = slice(start, start + BATCH)
        store.write(labels[part], index[part], pixels[: len(labels[part])])
    return time.perf_counter() - begun


def read_all(store: Store, labels: Any, index: Any) -> int:
    parts = [slice(start, start + BATCH) for start in range(0, len(labels), BATCH)]
    return sum(store.read(labels[part], index[part]) for part in parts)


def fill(name: str, folder: str, part: int = 0, parts: int = 1) -> dict[str, float]:
    """Write every `parts`-th client's images."""
    labels, index = addresses()
    mine = (index >> 32) % parts == part
    taken = write_all(STORES[name](Path(folder)), labels[mine], index[mine])
    return {"seconds": taken, "peak": peak_resident_bytes()}


def look(name: str, folder: str) -> dict[str, float]:
    """Open a store and read it: one batch, everything in order, everything at random."""
    labels, index = addresses()
    begun = time.perf_counter()
    store = STORES[name](Path(folder))
    store.read(labels[:BATCH], index[:BATCH])
    opened = time.perf_counter() - begun
    mixed = np.random.default_rng(1).permutation(IMAGES)
    in_order = seconds(lambda: read_all(store, labels, index))
    at_random = seconds(lambda: read_all(store, labels[mixed], index[mixed]))
    return {"open": opened, "in order": in_order, "random": at_random, "peak": peak_resident_bytes()}


def good(name: str, folder: str) -> dict[str, float]:
    """How many images are good, each read alone; an error is an image that is lost."""
    labels, index = addresses()
    store, found = STORES[name](Path(folder)), 0
    for row in range(IMAGES):
        try:
            found += store.read(labels[row : row + 1], index[row : row + 1])
        except Exception:
            continue
    return {"good": found}


def run(call: str, *arguments: object) -> dict[str, float]:
    """Call a function of this file in a fresh process."""
    script = f"import json, storage; print(json.dumps(storage.{call}(*{[str(each) for each in arguments[:2]]}"
    return in_fresh_process(f"{script}, *{list(arguments[2:])})))")


def lost(name: str, folder: Path, place: float) -> object:
    """Images lost when a few kilobytes at this place of the largest file are damaged."""
    damaged = folder.with_name(f"damaged-{place}")
    shutil.copytree(folder, damaged)
    largest = max((path for path in damaged.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(int(largest.stat().st_size * place) // DAMAGE * DAMAGE)
        file.write(bytes(DAMAGE))
    try:
        return int(IMAGES - run("good", name, damaged)["good"])
    except subprocess.CalledProcessError:
        return "all"


def bank_row(name: str, root: Path) -> dict[str, object]:
    alone, both = root / "alone", root / "both"
    alone.mkdir()
    both.mkdir()
    written = run("fill", name, alone)
    found = run("look", name, alone)
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(lambda part: run("fill", name, both, part, 2), range(2)))
    size = sum(512 * path.stat().st_blocks for path in alone.rglob("*") if path.is_file())
    return {
        "store": name,
        "write, images/s": round(IMAGES / written["seconds"]),
        "two writers, images/s": round(IMAGES / max(half["seconds"] for half in halves)),
        "read in order, images/s": round(IMAGES / found["in order"]),
        "random reads, images/s": round(IMAGES / found["random"]),
        "open and first batch, ms": round(1000 * found["open"], 1),
        "MB on disk": round(size / 1e6),
        "peak MB, reading": round(found["peak"] / 1e6),
        "lost if the first 4 KB are damaged": lost(name, alone, 0),
        "if 4 KB in the middle": lost(name, alone, 0.5),
    }


class Pngs:
    """Encoded images, as `fedeas.data.cache` reads them."""

    def __init__(self, count: int) -> None:
        from PIL import Image

        self.content = []
        for pixels in np.random.default_rng(2).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8):
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "png", compress_level=1)
            self.content.append(file.getvalue())

    def __len__(self) -> int:
        return len(self.content)

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        return ((str(row), self.content[row]) for row in range(start, stop))


def build_cache(name: str, folder: str) -> dict[str, float]:
    """Decode all images and keep them."""
    pictures, labels = Pngs(IMAGES), np.arange(IMAGES) % CLASSES
    begun = time.perf_counter()
    if name == "own arrays":
        names = tuple(map(str, range(CLASSES)))
        few = Pngs(1)
        os.environ["FEDEAS_CACHE"] = folder
        load_decoded("x", "", Path(), [], lambda: Encoded(pictures, labels, few, labels[:1], names))
    else:
        from datasets import Array3D, Dataset, Features, Value

        def rows() -> Iterator[dict[str, object]]:
            for (_, pixels), label in zip(decode(pictures.read(0, IMAGES)), labels, strict=True):
                yield {"image": pixels, "label": int(label)}

        features = Features({"image": Array3D(SHAPE, "uint8"), "label": Value("int64")})
        made = Dataset.from_generator(rows, features=features, cache_dir=f"{folder}/building")
        made.save_to_disk(f"{folder}/kept")
        shutil.rmtree(f"{folder}/building")
    return {"seconds": time.perf_counter() - begun, "peak": peak_resident_bytes()}


def read_cache(name: str, folder: str) -> dict[str, float]:
    """Open a cache, take random batches, and take all images as one array."""
    if name != "own arrays":
        from datasets import load_from_disk
    begun = time.perf_counter()
    if name == "own arrays":
        os.environ["FEDEAS_CACHE"] = folder
        images = load_decoded("x", "", Path(), [], lambda: None).images  # type: ignore[arg-type,return-value]
        opened = time.perf_counter() - begun
    else:
        kept = load_from_disk(f"{folder}/kept").with_format("numpy")
        opened = time.perf_counter() - begun
    rows = np.random.default_rng(3).permutation(IMAGES).reshape(-1, 50)[:, :BATCH]

    def take(part: Any) -> Any:
        return np.array(images[part]) if name == "own arrays" else kept[part]["image"]

    batches = seconds(lambda: [take(part) for part in rows])
    assert take(rows[0]).shape == (rows.shape[1], *SHAPE)
    everything = seconds(lambda: take(slice(None)))
    return {"open": opened, "batches": batches, "all": everything, "peak": peak_resident_bytes()}


def cache_row(name: str, folder: Path) -> dict[str, object]:
    folder.mkdir()
    built, found = run("build_cache", name, folder), run("read_cache", name, folder)
    size = sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
    return {
        "cache": name,
        "decode and keep, s": round(built["seconds"], 1),
        "open, s": round(found["open"], 2),
        "random batches of 50, images/s": round(IMAGES / found["batches"]),
        "all as one array, s": round(found["all"], 3),
        "MB on disk": round(size / 1e6),
        "peak MB, reading": round(found["peak"] / 1e6),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        banks = []
        for name in STORES:
            (root := Path(folder) / name).mkdir()
            banks.append(bank_row(name, root))
        caches = [cache_row(name, Path(folder) / name.replace(" ", "-")) for name in ("own arrays", "datasets")]
    save("storage-bank", f"The image bank and databases: {IMAGES:,} images of 3 x 32 x 32, batches of {BATCH}", banks)
    save("storage-cache", f"The data cache and Hugging Face datasets: {IMAGES:,} PNG images of 3 x 32 x 32", caches)


if __name__ == "__main__":
    sys.exit(main())
