"""What do compiling and capturing bring to a diffusion model, and does the fast sampler cost quality? Needs a GPU.

``training`` compares our updates with the plain diffusers loop, on the network of the `compact` preset.
``sampling WEIGHTS DATA_ROOT`` compares our samplers with diffusers' own pipeline on trained CIFAR-10 weights, in speed
and in what a classifier thinks of the images.
``steps WEIGHTS DATA_ROOT`` compares our samplers by their number of steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from diffusers import DDIMPipeline, DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from measure import save

from fedeas.data.sources import load_dataset
from fedeas.generators.base import image_index
from fedeas.generators.diffusion.presets import preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.quality.classifier import Classifier
from fedeas.generators.quality.metrics import CHECK_CLIENT, Report, Yardstick, judge

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = DEVICE.type == "cpu"  # only to see that it runs
PRESET = preset("digits" if SMALL else "compact")
PER_CLASS = 2 if SMALL else 100
SHAPE = (1, 8, 8) if SMALL else (3, 32, 32)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (2000, *SHAPE), dtype=np.uint8)  # speed does not depend on what is seen
LABELS = RNG.integers(0, 10, 2000)
CLASSES = [str(label) for label in range(10)]


def images_per_second(step: Callable[[], object], images: int, warm: int = 5, seconds: float = 10.0) -> float:
    for _ in range(warm):
        step()
    wait()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < (1 if SMALL else seconds):
        step()
        wait()
        steps += 1
    return images * steps / (time.perf_counter() - start)


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def plain_training(batch: int = 128) -> Callable[[], None]:
    """The loop of diffusers' training examples: eager, bf16 by autocast, the data already on the GPU."""
    network = PRESET.network.build(SHAPE, 10).to(DEVICE)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    ema = EMAModel(network.parameters(), decay=0.9999)
    scheduler = DDPMScheduler(**PRESET.network.scheduler_settings())
    images, labels = torch.from_numpy(IMAGES).to(DEVICE), torch.from_numpy(LABELS).to(DEVICE)

    def step() -> None:
        index = torch.randint(len(labels), (batch,), device=DEVICE)
        clean = images[index].float() / 127.5 - 1
        noise = torch.randn_like(clean)
        level = torch.randint(0, 1000, (batch,), device=DEVICE)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            predicted = network(scheduler.add_noise(clean, noise, level), level, class_labels=labels[index]).sample
            loss = torch.nn.functional.mse_loss(predicted.float(), noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        ema.step(network.parameters())

    return step


def our_training(compiled: bool) -> tuple[Callable[[], None], float]:
    trainer = Trainer(IMAGES, LABELS, CLASSES, PRESET, device=DEVICE, compiled=compiled)
    start = time.perf_counter()
    for _ in range(4):  # compiling, warming up, recording
        trainer.update()
    wait()
    return trainer.update, time.perf_counter() - start


def training() -> None:
    plain = images_per_second(plain_training(), 128)
    rows = [{"loop": "plain diffusers loop: eager, autocast bf16, batch 128", "images/s": round(plain), "times": 1.0}]
    for compiled in (False, not SMALL):
        step, begin = our_training(compiled)
        speed = images_per_second(step, PRESET.batch)
        name = f"fedeas: {'compiled and ' if compiled else ''}captured, batch {PRESET.batch}"
        row = {"loop": name, "images/s": round(speed), "times": round(speed / plain, 1), "s to begin": round(begin)}
        rows.append(row)
        print(row, flush=True)
    save("gpu-generator-training", "Training of the compact diffusion model (14.5 million parameters), 32 x 32", rows)


class Labelled(UNet2DModel):
    """A network that is told its classes beside the pipeline, which does not pass any."""

    classes: torch.Tensor

    def forward(self, sample, timestep, *arguments, **options):  # type: ignore[no-untyped-def]
        return super().forward(sample, timestep, class_labels=self.classes)


def pipeline_images(weights: Weights, labels: np.ndarray, batch: int) -> tuple[np.ndarray, float]:
    """Images of diffusers' DDIMPipeline, 250 steps in fp32, and the seconds they took."""
    network = weights.build().to(DEVICE)
    labelled = Labelled(**network.config)
    labelled.load_state_dict(network.state_dict())
    labelled = labelled.to(DEVICE).eval()
    scheduler = DDIMScheduler(**weights.network.scheduler_settings(), clip_sample=True)
    pipeline = DDIMPipeline(labelled, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    random = torch.Generator(DEVICE).manual_seed(0)
    parts, spent = [], 0.0
    for start in range(0, len(labels), batch):
        labelled.classes = torch.from_numpy(labels[start : start + batch]).to(DEVICE)
        wait()
        begun = time.perf_counter()
        count = len(labelled.classes)
        made = pipeline(count, random, num_inference_steps=4 if SMALL else 250, output_type="np").images
        spent += time.perf_counter() - begun
        parts.append((np.asarray(made) * 255).round().astype(np.uint8).reshape(count, *SHAPE[1:], SHAPE[0]))
    return np.concatenate(parts).transpose(0, 3, 1, 2), spent


def our_images(
    weights: Weights, labels: np.ndarray, client: int = CHECK_CLIENT, **settings: object
) -> tuple[np.ndarray, float, float, str]:
    generator = DiffusionGenerator(weights, device=DEVICE, **settings)  # type: ignore[arg-type]
    start = time.perf_counter()
    generator.sample(labels[:8], np.arange(8))  # compiling, warming up, recording
    begin, start = time.perf_counter() - start, time.perf_counter()
    index = image_index(client, len(labels))
    images = generator.sample(labels, index)
    return images, time.perf_counter() - start, begin, generator.description


def sampling(weights: Weights, yardstick: Yardstick) -> None:
    labels = np.tile(np.arange(10), PER_CLASS)
    images, seconds = pipeline_images(weights, labels, 512)
    base = len(labels) / seconds
    rows = [
        {
            "sampler": "diffusers' DDIMPipeline, 250 steps, unguided, fp32, batch 512",
            "images/s": round(base, 1),
            "times": 1.0,
        }
    ]
    rows[0] |= judged(images, labels, yardstick)
    print(rows[0], flush=True)
    settings: list[dict[str, object]] = [{"guidance": 1.0, "compiled": not SMALL}, {"compiled": not SMALL}]
    settings += [{"solver": "ddpm", "guidance": 1.0}, {"solver": "ddim", "steps": 50, "guidance": 1.0}]
    settings += [{"steps": steps, "guidance": 1.0} for steps in (10, 30, 50)]
    settings += [{"guidance": guidance} for guidance in (1.25, 1.5, 2.0)]
    for each in settings:
        images, seconds, begin, about = our_images(weights, labels, **each)
        speed = len(labels) / seconds
        about = about.partition(", ")[2] + (", compiled" if each.get("compiled") else "")
        row = {"sampler": f"fedeas: {about}, batch 512", "images/s": round(speed, 1), "times": round(speed / base, 1)}
        rows.append({**row, "s to begin": round(begin), **judged(images, labels, yardstick)})
        print(rows[-1], flush=True)
        question = f"Sampling of the compact diffusion model, {len(labels):,} images of each sampler"
        save("gpu-generator-sampling", question, rows)  # after each: the last ones may not be waited for


def steps(weights: Weights, yardstick: Yardstick) -> None:
    """Two samples of 4,000 images for each solver and number of steps; agreement with its 95 % interval."""
    labels, rows = np.tile(np.arange(10), 2 if SMALL else 400), list[dict[str, object]]()
    few = [("dpm", 20), ("dpm", 13), *(("dpm-snr", steps) for steps in (20, 16, 13, 10, 8))]
    for solver, number in few:
        found, speeds = list[Report](), list[float]()
        for client in (CHECK_CLIENT, CHECK_CLIENT - 1):
            images, seconds, begin, _ = our_images(weights, labels, client, solver=solver, steps=number)
            found.append(judge(images, labels, yardstick))
            speeds.append(len(labels) / seconds)
        share = np.mean([report.agreement for report in found])
        margin = 1.96 * np.sqrt(share * (1 - share) / (2 * len(labels)))
        row: dict[str, object] = {"solver": solver, "steps": number, "images/s": round(max(speeds))}
        row |= {"s to begin": round(begin, 1), "agreement": f"{share:.2%} ± {margin:.2%}"}
        row["classifier Frechet, each sample"] = ", ".join(f"{report.classifier_frechet:.3f}" for report in found)
        row["suspected copies"] = f"{np.mean([report.suspected_copies for report in found]):.2%}"
        rows.append(row)
        print(row, flush=True)
        save("gpu-generator-steps", "Solvers and their steps, guidance 1.5, bf16, twice 4,000 CIFAR-10 images", rows)


def judged(images: np.ndarray, labels: np.ndarray, yardstick: Yardstick) -> dict[str, object]:
    report: Report = judge(images, labels, yardstick)
    return {"agreement": f"{report.agreement:.2%}", "classifier Frechet": round(report.classifier_frechet, 3)}


def main() -> None:
    if sys.argv[1:] == ["training"]:
        training()
        return
    _, task, weights, root = sys.argv
    data = load_dataset("digits" if SMALL else "cifar10", None if SMALL else root)
    classifier = Classifier.train(data.images, data.labels, 10, device=DEVICE, class_names=data.classes)
    yardstick = Yardstick.of(classifier, data.images, data.test_images, data.test_labels)
    {"sampling": sampling, "steps": steps}[task](Weights.load(weights), yardstick)


if __name__ == "__main__":
    main()
