"""How fast is the image bank, and are our files for images better than a library's? Started by hand, after
`pip install datasets`: the bank is filled and read by ten processes at once, and the data cache is measured beside
Hugging Face `datasets`.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import in_fresh_process, peak_resident_bytes, save, seconds

from fedeas.data.cache import Encoded, decode, load_decoded
from fedeas.generators.bank import Bank
from fedeas.generators.base import plan_addresses

SHAPE, CLASSES, CLIENTS, PROCESSES, BATCH = (3, 32, 32), 10, 100, 10, 64
BANK_IMAGES = 270_190  # as many as a FedEAS plan for CIFAR-10 asks for
PLAN = np.full(CLIENTS * CLASSES, BANK_IMAGES // (CLIENTS * CLASSES))
PLAN[: BANK_IMAGES % PLAN.size] += 1
PLAN = PLAN.reshape(CLIENTS, CLASSES)
IMAGES = 20_000  # of the data cache


class Instant:
    """A generator that takes no time, and counts the images that it makes."""

    num_classes, shape, batch_size, fingerprint = CLASSES, SHAPE, 256, "a" * 64
    pixels = np.random.default_rng(0).integers(0, 256, (batch_size, *SHAPE), dtype=np.uint8)

    def __init__(self, made: Any) -> None:
        self.made = made

    def sample(self, labels: Any, index: Any) -> Any:
        self.made.value += len(labels)
        return self.pixels[: len(labels)]


def ask(folder: Path, clients: range, made: Any) -> None:
    """Request all images of some clients, one client after the other, as a run does."""
    bank = Bank(folder).of(Instant(made))
    for client in clients:
        bank.sample(*plan_addresses(client, PLAN[client]))


def at_once(folder: Path, parts: list[range], kill: bool) -> tuple[float, int]:
    """A process for each part; `kill` ends each once, after a third of its images. Seconds, and images made."""
    fork = multiprocessing.get_context("fork")
    made = [fork.Value("q", 0) for _ in parts]

    def started(part: int) -> Any:
        process = fork.Process(target=ask, args=(folder, parts[part], made[part]))
        process.start()
        return process

    begun = time.perf_counter()
    running, to_kill = [started(part) for part in range(len(parts))], {*range(len(parts))} if kill else set()
    while to_kill:
        for part in [part for part in to_kill if made[part].value > PLAN[parts[part]].sum() / 3]:
            running[part].kill()
            running[part].join()
            running[part] = started(part)
            to_kill.remove(part)
        assert not any(process.exitcode for process in running)
        time.sleep(0.002)
    for process in running:
        process.join()
        assert process.exitcode == 0
    return time.perf_counter() - begun, sum(count.value for count in made)


def bank_row(folder: Path) -> dict[str, object]:
    before = os.times().children_user + os.times().children_system
    fill, made = at_once(folder, [range(part, CLIENTS, PROCESSES) for part in range(PROCESSES)], kill=True)
    read, none = at_once(folder, [range(CLIENTS)] * PROCESSES, kill=False)
    assert none == 0
    size = sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
    return {
        "bank": "SQLite",
        "filled in, s": round(fill, 1),
        "made again after kills": made - BANK_IMAGES,
        "read ten times in, s": round(read, 1),
        "seconds of processors": round(os.times().children_user + os.times().children_system - before, 1),
        "MB on disk": round(size / 1e6),
    }


def run(call: str, *arguments: object) -> dict[str, float]:
    """Call a function of this file in a fresh process."""
    return in_fresh_process(f"import json, storage; print(json.dumps(storage.{call}(*{list(map(str, arguments))})))")


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
        load_decoded("x", "0" * 64, lambda: Encoded(pictures, labels, few, labels[:1], names))
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
        images = load_decoded("x", "0" * 64, lambda: None).images  # type: ignore[arg-type,return-value]
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
        banks = [bank_row(Path(folder) / "bank")]
        caches = [cache_row(name, Path(folder) / name.replace(" ", "-")) for name in ("own arrays", "datasets")]
    question = f"The image bank: {BANK_IMAGES:,} images of 3 x 32 x 32, ten processes at once, each killed once"
    save("storage-bank", question, banks)
    save("storage-cache", f"The data cache and Hugging Face datasets: {IMAGES:,} PNG images of 3 x 32 x 32", caches)


if __name__ == "__main__":
    sys.exit(main())
