"""How fast is local training on a GPU, does it compute the same, and how does it grow? Needs a GPU.

``throughput STEM``  images a second of each algorithm against the eager fp32 reference, on the paper's client sizes
``steps STEM``       milliseconds of a recorded step for one to ten clients, beside what the chip allows
``kernels STEM``     microseconds of the kernels of a step, by kind
``growth STEM``      images a second as clients grow, and as the federation grows at fixed participants
``correctness STEM`` weights after an epoch, the fast engine against the reference, in fp32
``ablation``         what each part of the fast engines brings, on both stems
``agreement CONFIG DATA_ROOT``   accuracy in bf16 against fp32, and the spread over three seeds
``rounding STEM``    how far fp32 and fp64 end apart after the same epoch: what correctness can be at best
``preparation STEM DATA_ROOT CONFIG``  seconds of short runs, one after the other in one process
``whole STEM DATA_ROOT RUNS CONFIG...``  seconds of whole commands, with an empty folder RUNS
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from statistics import stdev
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from measure import RESULTS, save
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fedeas.algorithms import parse_algorithm
from fedeas.algorithms.base import Fleet
from fedeas.config import EngineConfig, TrainConfig, load_config
from fedeas.core.devices import torch_precision
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.names import KNOWN
from fedeas.data.partition import paper_replay
from fedeas.fast import backend_for, fused, gpu_engine, stacked, stacked_layers
from fedeas.fast import lanes as lanes_module
from fedeas.fast.fusion import FusionEngine
from fedeas.federation.engines.base import Task
from fedeas.federation.rounds import Schedule, set_up
from fedeas.federation.run import execute
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import Captured
from fedeas.models.build import build_model
from fedeas.runs.store import RunStore

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = DEVICE.type == "cpu"  # only to see that it runs
SHAPE, MODEL = ((1, 8, 8), "small-cnn") if SMALL else ((3, 32, 32), "resnet18")
WARM_UP = 2
WATCHED = ProfilerActivity.CPU if SMALL else ProfilerActivity.CUDA
SUFFIX = {"3x3": "", "imagenet": "-imagenet-stem"}
NORMALISE = Normaliser.of((0.5,) * SHAPE[0], (0.25,) * SHAPE[0], DEVICE)


def worker(spec: str, sizes: Sequence[int], precision: str, epochs: int, stem: str = "3x3") -> Worker:
    """Clients of these sizes with random images: speed does not depend on what is seen."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (max(sizes), *SHAPE), dtype=np.uint8)
    labels = rng.integers(0, 10, max(sizes))
    model = new_model(stem)
    nothing = np.zeros((len(sizes), 10), dtype=np.int64)

    def load(client: int) -> ClientData:
        return ClientData.of(images[: sizes[client]], labels[: sizes[client]], NORMALISE)

    train = TrainConfig(batch_size=64, epochs=epochs)
    return Worker(parse_algorithm(spec), model, load, nothing, None, train, 0, 10, precision)


def new_model(stem: str) -> torch.nn.Module:
    return build_model(MODEL, SHAPE, 10, seed=0, **({} if SMALL else {"stem": stem})).to(DEVICE)


def images_per_second(
    engine: LocalEngine, sizes: Sequence[int], clients: list[int], rounds: int, fastest_kernels: bool = False
) -> float:
    """Over whole rounds, after two that warm up, choose the number of lanes and record."""
    own = engine.worker
    server = own.algorithm.init(own.model, Fleet(np.array(sizes), 10))
    spent = 0.0
    with torch_precision(own.precision, DEVICE):
        torch.backends.cudnn.deterministic &= not fastest_kernels
        server = set_up(own.algorithm, engine, server, len(sizes))
        for round in range(rounds + WARM_UP):
            broadcast = own.algorithm.broadcast(server, round)
            wait()
            start = time.perf_counter()
            replies = engine.map(Task.TRAIN, broadcast, clients, round)
            wait()
            spent += time.perf_counter() - start if round >= WARM_UP else 0.0
            server = own.algorithm.server_update(server, replies, round)
    return own.train.epochs * sum(sizes[client] for client in clients) * rounds / spent


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def fast(own: Worker, sizes: Sequence[int], name: str = "fast", **settings: Any) -> LocalEngine:
    """The engine that a run with ten participants would take."""
    return gpu_engine(own, SHAPE, NORMALISE, max(sizes), EngineConfig(name=name, **settings), 10)


def is_stacked(engine: LocalEngine) -> bool:
    return isinstance(engine, FusionEngine)


def paper_sizes(clients: int) -> list[int]:
    """Real samples of the paper's clients, CIFAR-10 at alpha = 0.1."""
    split = paper_replay(KNOWN["cifar10"].labels(merged=True), clients, 0.1)
    return [len(part) // (40 if SMALL else 1) + 1 for part in split.indices]


def throughput(stem: str) -> None:
    sizes = paper_sizes(20)
    clients = Schedule(1, 20, 10, 0).clients(0)
    rows: list[dict[str, object]] = []
    precision = "fp32" if SMALL else "bf16"
    usual = usual_loop(max(sizes), stem)
    for spec in ("fedavg", "fedprox", "scaffold", "moon", "fedmix", "fedgen(ensemble_epochs=1)"):
        few = [min(clients, key=lambda client: abs(sizes[client] - 2000))]  # eager speed does not depend on the client
        own = worker(spec, sizes, "fp32", 1, stem)
        plain = images_per_second(LocalEngine(own), sizes, few, 1, fastest_kernels=True)
        engine = fast(worker(spec, sizes, precision, 1 if spec == "fedmix" else 4, stem), sizes)
        speed = images_per_second(engine, sizes, clients, 1)
        engine.close()
        rows.append(
            {
                "algorithm": spec,
                "usual loop, fp32, images/s": usual if spec == "fedavg" else "",
                "reference engine, fp32, images/s": round(plain),
                f"fast engine, {precision}, images/s": round(speed),
                "times the reference": round(speed / plain, 1),
                "engine": "fused" if is_stacked(engine) else "lanes",
            }
        )
        print(rows[-1], flush=True)
        title = f"Local training on the paper's K = 20, alpha = 0.1 clients, ten a round, batch 64, {stem} stem"
        save(f"gpu-rounds{SUFFIX[stem]}", title, rows)


def usual_loop(size: int, stem: str) -> int:
    """Images a second of the loop that tutorials have: ``torch.optim.SGD``, fp32, one batch after the other."""
    model = new_model(stem)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    images = torch.rand(size, *SHAPE, device=DEVICE)
    labels = torch.randint(0, 10, (size,), device=DEVICE)
    with torch_precision("fp32", DEVICE):
        torch.backends.cudnn.deterministic = False  # as torch is by default
        for epoch in range(2):
            wait()
            start = time.perf_counter() if epoch else 0.0
            for batch in torch.randperm(size, device=DEVICE).split(64):
                loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        wait()
    return round(size / (time.perf_counter() - start))


def steps(stem: str) -> None:
    """A step of as many clients as still train, each with a batch of 64, replayed alone."""
    sizes, precision = [64 * (client + 1) for client in range(10)], "fp32" if SMALL else "bf16"
    own = worker("fedavg", sizes, precision, 4, stem)
    engine = fast(own, sizes, "fused")
    images_per_second(engine, sizes, list(range(10)), 1)
    assert isinstance(engine, FusionEngine)
    print(f"prepared in {engine.fused.preparing:.1f} s", flush=True)
    recorded = {int(str(key[0])): step for key, step in engine.fused.steps.items()}
    speeds = chip_speeds()
    rows: list[dict[str, object]] = []
    for clients, step in sorted(recorded.items()):
        ms, least = milliseconds(step, engine.fused.number), least_milliseconds(stem, clients, *speeds)
        rows.append({"clients": clients, "ms": round(ms, 3), "images/s": round(64000 * clients / ms)})
        rows[-1] |= {"least ms, arithmetic": round(least[0], 3), "least ms, memory": round(least[1], 3)}
        print(rows[-1], flush=True)
    engine.close()
    rates = f"{speeds[0] / 1e12:.0f} TFLOP/s and {speeds[1] / 1e12:.1f} TB/s measured"
    save(f"gpu-rounds-steps{SUFFIX[stem]}", f"One step of SGD, batches of 64, {precision}, {stem} stem; {rates}", rows)


KINDS = {
    "convolutions, last layer": ("conv", "wgrad", "dgrad", "fprop", "gemm", "nvjet", "cutlass", "_gather", "_sum_back"),
    "batch norms": ("_statistics", "_result", "_slope"),
    "SGD and short weights": ("multi_tensor_apply", "_descend"),
    "other kernels": ("",),
}
"""Kinds of kernels, by what their names contain; the first that fits."""


def kernels(stem: str) -> None:
    """What a step of one client spends on the GPU, by kind of kernel, if no other client trains."""
    sizes, precision = [640], "fp32" if SMALL else "bf16"
    own = worker("fedavg", sizes, precision, 10, stem)
    with closing(fast(own, sizes, "lanes", lanes=1)) as engine:
        images_per_second(engine, sizes, [0], 1)
        broadcast = own.algorithm.broadcast(own.algorithm.init(own.model, Fleet(np.array(sizes), 10)), 0)
        with torch_precision(precision, DEVICE), profile(activities=[WATCHED]) as profiled:
            engine.map(Task.TRAIN, broadcast, [0], 0)
            wait()
    steps = own.train.epochs * sizes[0] // own.train.batch_size
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for event in profiled.events():
        if not SMALL and event.device_type != DeviceType.CUDA:
            continue
        kind = next(kind for kind, parts in KINDS.items() if any(part in event.name for part in parts))
        spent[kind].append(event.time_range.elapsed_us())
    rows: list[dict[str, object]] = [
        {"kind": kind, "kernels": round(len(each) / steps), "microseconds": round(sum(each) / steps)}
        for kind, each in spent.items()
    ]
    question = f"Kernels of a step of one client, alone in a lane, batch 64, {precision}, {stem} stem"
    save(f"gpu-rounds-kernels{SUFFIX[stem]}", question, rows)


def milliseconds(step: Captured, number: torch.Tensor, times: int = 40) -> float:
    for warm in (True, False):
        number.zero_()
        wait()
        start = time.perf_counter()
        for _ in range(3 if warm else times):
            step()
        wait()
    return 1000 * (time.perf_counter() - start) / times


def chip_speeds() -> tuple[float, float]:
    """Multiplications and additions a second in large products, and bytes a second in large copies."""
    size, dtype = (64, torch.float32) if SMALL else (8192, torch.bfloat16)
    square, block = torch.ones(size, size, dtype=dtype, device=DEVICE), torch.ones(size * size * 4, device=DEVICE)
    other = torch.empty_like(block)
    spent = []
    for work in (lambda: square @ square, lambda: other.copy_(block)):
        work()
        wait()
        start = time.perf_counter()
        for _ in range(10):
            work()
        wait()
        spent.append((time.perf_counter() - start) / 10)
    return 2 * size**3 / spent[0], 2 * block.numel() * 4 / spent[1]


def least_milliseconds(stem: str, clients: int, arithmetic: float, memory: float) -> tuple[float, float]:
    """Time for the arithmetic of the convolutions alone, and for reading and writing what no kernel can avoid.

    A pass back takes twice the arithmetic of a pass forward. Of each activation a step moves at least 20 bytes (two
    layers forward, three tensors for each of them back, in bf16), of each trained weight 22 (its short form twice and
    new, its gradient twice, itself twice).
    """
    model = new_model(stem)
    operations = values = weights = 0
    for name, (height, width) in stacked._map_sizes(model, SHAPE).items():
        conv = model.get_submodule(name)
        window = stacked_layers.KernelWindow.of(conv, height, width)
        seen = (window.rows.stop - window.rows.start) * (window.columns.stop - window.columns.start)
        outputs = conv.out_channels * -(-height // conv.stride[0]) * -(-width // conv.stride[1])
        operations += 6 * outputs * conv.in_channels * seen
        values, weights = values + outputs, weights + conv.out_channels * conv.in_channels * seen
    moved = clients * (64 * values * 20 + weights * 22)
    return 1000 * 64 * clients * operations / arithmetic, 1000 * moved / memory


def growth(stem: str) -> None:
    precision, rows = "fp32" if SMALL else "bf16", list[dict[str, object]]()
    federations = [[size] * 10 for size in ((64, 640) if SMALL else (64, 200, 640, 2000, 6400))]
    federations += [[640] * clients for clients in ((100,) if SMALL else (100, 1000))]
    for sizes in federations:
        engine = fast(worker("fedavg", sizes, precision, 2, stem), sizes)
        speed = images_per_second(engine, sizes, Schedule(1, len(sizes), 10, 0).clients(0), 2)
        engine.close()
        rows.append({"clients": len(sizes), "samples of a client": sizes[0], "images/s": round(speed)})
        print(rows[-1], flush=True)
    title = f"Local training with the fast engine, FedAvg, {precision}, ten clients a round, {stem} stem"
    save(f"gpu-rounds-growth{SUFFIX[stem]}", title, rows)


def correctness(stem: str) -> None:
    """How far a client's weights after one epoch are apart, relative to their norm, in fp32."""
    rows = []
    for spec in ("fedavg", "fedprox", "scaffold", "moon", "fedmix", "fedgen"):
        sizes, found = [1000], list[dict[str, torch.Tensor]]()
        for make in (LocalEngine, lambda own, sizes=sizes: fast(own, sizes)):
            own = worker(spec, sizes, "fp32", 1, stem)
            engine = make(own)
            with torch_precision("fp32", DEVICE):
                server = set_up(own.algorithm, engine, own.algorithm.init(own.model, Fleet(np.array(sizes), 10)), 1)
                [reply] = engine.map(Task.TRAIN, own.algorithm.broadcast(server, 0), [0], 0)
            found.append({key: value for key, value in reply.arrays.items() if is_weight(key, value)})
            engine.close()
        apart = sum((found[0][key] - found[1][key]).norm() ** 2 for key in found[0])
        whole = sum(value.norm() ** 2 for value in found[0].values())
        row = {"algorithm": spec, "relative difference of the weights": f"{(apart / whole).sqrt().item():.1e}"}
        rows.append(row)
        print(rows[-1], flush=True)
    title = f"Weights after one epoch of 1,000 samples in fp32, fast engine against the reference, {stem} stem"
    save(f"gpu-rounds-correctness{SUFFIX[stem]}", title, rows)


def rounding(stem: str) -> None:
    """Train ResNet-18 on the same batches in fp32 and fp64, each in two memory layouts; a CPU will do."""
    rng, shape = np.random.default_rng(0), (3, 32, 32)
    pixels = torch.from_numpy((rng.integers(0, 256, (1000, *shape)) / 255 - 0.5) / 0.25).to(DEVICE)
    labels, order = torch.from_numpy(rng.integers(0, 10, 1000)).to(DEVICE), torch.from_numpy(rng.permutation(1000))
    ends = {}
    with torch_precision("fp32", DEVICE):
        for dtype, layout in product((torch.float64, torch.float32), (torch.contiguous_format, torch.channels_last)):
            model = build_model("resnet18", shape, 10, seed=0, stem=stem)
            model = model.to(DEVICE, dtype).to(memory_format=layout).train()
            optimiser = torch.optim.SGD(model.parameters(), lr=TrainConfig().lr)
            for batch in order.split(64):
                images = pixels[batch].to(dtype).contiguous(memory_format=layout)
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels[batch]).backward()
                optimiser.step()
            weights = [each for each in model.state_dict().values() if each.is_floating_point()]
            ends[dtype, layout] = torch.cat([each.double().flatten() for each in weights])
    exact, single = (ends[dtype, torch.contiguous_format] for dtype in (torch.float64, torch.float32))
    pairs = {
        "fp32 and fp64": (single, exact),
        "fp32, two layouts": (single, ends[torch.float32, torch.channels_last]),
        "fp64, two layouts": (exact, ends[torch.float64, torch.channels_last]),
    }
    rows = [
        {"compared": name, "relative difference of the weights": f"{((a - b).norm() / exact.norm()).item():.1e}"}
        for name, (a, b) in pairs.items()
    ]
    save(f"gpu-rounds-rounding{SUFFIX[stem]}", f"Rounding alone: weights after the same epoch, {stem} stem", rows)


@contextmanager
def without(*parts: tuple[ModuleType | type, str, object]) -> Iterator[None]:
    """Replace functions of the engines for a while."""
    with ExitStack() as stack:
        for owner, name, other in parts:
            stack.enter_context(mock.patch.object(owner, name, other))
        yield


LANES_WITHOUT = {
    "fused norms": [(lanes_module, "fuse_norms", lambda model: None)],
    "short weights": [(lanes_module, "shortened", lambda model: nullcontext())],
}
FUSED_WITHOUT = {
    "own kernels": [
        (stacked_layers, "_kernels_for", lambda images, name="": None),
        (fused, "load_kernels", lambda name: None),
    ],
    "short weights": [(stacked.Stack, "shorten", lambda stack: None)],
    "work beside the main chain": [
        (fused, "uses_of_leaves", lambda loss: Counter()),
        (stacked_layers, "branch", lambda work, device: (work(), lambda: None)),
    ],
}


def ablation() -> None:
    """Images a second of ten equal clients, with every part and with one part switched off."""
    sizes, precision, rows = [640] * 10, "fp32" if SMALL else "bf16", list[dict[str, object]]()
    for stem in ("3x3", "imagenet"):
        for name, switches in (("lanes", LANES_WITHOUT), ("fused", FUSED_WITHOUT)):
            variants = [("all parts", {}, [])] + [(f"without {part}", {}, each) for part, each in switches.items()]
            variants += (
                [("one lane", {"lanes": 1}, []), ("torch.compile", {"compile": True}, [])] if name == "lanes" else []
            )
            for title, more, parts in variants:
                with without(*parts):
                    engine = fast(worker("fedavg", sizes, precision, 10, stem), sizes, name, **more)
                    speed = images_per_second(engine, sizes, list(range(10)), 2)
                    engine.close()
                rows.append({"stem": stem, "engine": name, "variant": title, "images/s": round(speed)})
                print(rows[-1], flush=True)
    save(
        "gpu-rounds-ablation",
        f"What each part brings: FedAvg, ten clients of 640 samples, ten epochs, {precision}",
        rows,
    )


def is_weight(key: str, value: torch.Tensor) -> bool:
    return key.startswith("model/") and value.is_floating_point()


def agreement(config: str, root: str) -> None:
    """Accuracy of 20 rounds in fp32 and bf16 with one seed, and the spread over three seeds."""
    rows, accuracies = list[dict[str, object]](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for precision, seed in (("fp32", 0), ("bf16", 0), ("bf16", 1), ("bf16", 2)):
            settings = ["rounds.total=20", "train.epochs=5", "policy=no-generation", "engine.name=lanes"]
            settings += [f"engine.precision={precision}", f"seed={seed}"]
            given = load_config(config, [*settings, f'data.root="{root}"'])
            run = execute(given, RunStore(folder), backend_for=backend_for)
            accuracies.append(100 * run.summary()["accuracy"])
            rows.append({"precision": precision, "seed": seed, "accuracy, %": round(accuracies[-1], 2)})
            print(rows[-1], flush=True)
    rows.append(
        {
            "precision": "fp32 and bf16 apart, seed 0",
            "seed": "",
            "accuracy, %": round(abs(accuracies[0] - accuracies[1]), 2),
        }
    )
    rows.append(
        {"precision": "deviation over the seeds, bf16", "seed": "", "accuracy, %": round(stdev(accuracies[1:]), 2)}
    )
    save("gpu-rounds-agreement", "Accuracy over 20 rounds of five epochs by precision and seed, K = 100", rows)


def preparation(stem: str, root: str, config: str) -> None:
    """Seconds of three runs of eight rounds in one process: the later ones use what the first one has recorded."""
    rows = list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(3):
            given = load_config(config, [f"seed={seed}", "rounds.total=8", f'data.root="{root}"'])
            spent = execute(given, RunStore(folder), backend_for=backend_for).summary()["seconds"]
            phases = {name: round(spent[name], 2) for name in ("prepare", "engine", "train", "evaluate", "total")}
            rows.append({"run of the process": seed + 1, **phases})
            print(rows[-1], flush=True)
    precision = load_config(config).engine.precision
    title = f"Seconds of runs of eight rounds, one after the other in one process, {precision}, {stem} stem"
    save(f"gpu-rounds-preparation{SUFFIX[stem]}", title, rows)


def whole(stem: str, root: str, runs: str, *configs: str) -> None:
    """Seconds of ``fedeas run CONFIG``, start-up included, and where those of the rounds went.

    A config that is given twice is run twice: the first run on a machine also decodes images and compiles kernels. Rows
    of other runs, which were measured earlier, stay in the table.
    """
    saved = RESULTS / f"gpu-runs{SUFFIX[stem]}.json"
    rows = {row["run"]: row for row in json.loads(saved.read_text())["rows"]} if saved.exists() else {}
    for number, config in enumerate(configs):
        folder = Path(runs) / f"{number}-{Path(config).stem}"
        command = [sys.executable, "-m", "fedeas", "run", config, "--data-root", root, "--runs", str(folder), "--quiet"]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        [file] = folder.glob("*/summary.json")
        row = {**seconds_of(json.loads(file.read_text())), "whole command": round(seconds, 1)}
        row["run"] = f"{row['run']}{', again' * configs[:number].count(config)}"
        rows[row["run"]] = row
        print(row, flush=True)
        save(f"gpu-runs{SUFFIX[stem]}", f"Seconds of whole federated runs, bf16, {stem} stem", list(rows.values()))


def seconds_of(summary: dict[str, Any]) -> dict[str, object]:
    """A run's row, from its summary."""
    spent, made = summary["seconds"], (summary["images"] or {}).get("made", 0)
    parts = {name: round(spent[name], 1) for name in ("prepare", "generate", "train", "evaluate")}
    return {"run": summary["label"], "rounds": summary["rounds"], "images made": made, **parts}


if __name__ == "__main__":
    tasks = [throughput, steps, kernels, growth, correctness, rounding, ablation, agreement, preparation, whole]
    {task.__name__: task for task in tasks}[sys.argv[1]](*sys.argv[2:])
