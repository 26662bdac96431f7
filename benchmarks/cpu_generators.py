"""What is a diffusion model worth after ten minutes of one CPU core, beside the Gaussian?

    python benchmarks/cpu_generators.py FOLDER_OF_DATASETS WEIGHTS.safetensors [fashion-mnist | cifar10]

The weights are trained if the file is missing. Without a dataset it is Fashion-MNIST, scaled down to 16 x 16. One small
CNN judges all generators.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import save
from torch.nn import functional

from fedeas.data.dataset import Dataset
from fedeas.data.sources import load_dataset
from fedeas.generators.base import image_index
from fedeas.generators.diffusion.presets import preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.generators.quality.classifier import Classifier, Images
from fedeas.generators.quality.metrics import CHECK_CLIENT, Yardstick, judge

PER_CLASS, COMPARED, EPOCHS = 300, 10_000, 6
LABELS = np.repeat(np.arange(10), PER_CLASS)


def main() -> None:
    folder, file, named = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    data = load_dataset(*(named or ["fashion-mnist"]), folder)
    images, test_images = (part if named else scaled(part) for part in (data.images, data.test_images))
    weights = Weights.load(file) if file.exists() else trained(data, images, file)
    classifier = Classifier.train(images, data.labels, 10, epochs=EPOCHS, architecture="small-cnn")
    some = np.random.default_rng(0).choice(len(images), COMPARED, replace=False)
    yardstick = Yardstick.of(classifier, images[some], test_images, data.test_labels)
    start = time.process_time()
    gaussian = GaussianGenerator.fit(images, data.labels, 10)
    fitting = time.process_time() - start
    wider = GaussianGenerator.fit(images, data.labels, 10, components=64)
    quick, seconds = DiffusionGenerator(weights), weights.provenance["cpu_seconds"]
    rows = [
        judged("gaussian", gaussian, fitting, yardstick),
        judged("gaussian(components=64)", wider, fitting, yardstick),
        judged("diffusion, preset quick", quick, seconds, yardstick),
        judged("the same, guidance=1", DiffusionGenerator(weights, guidance=1.0), seconds, yardstick),
        {
            "generator": "real test images",
            "agreement": f"{float((yardstick.test_classes == yardstick.test_labels).mean()):.1%}",
            "classifier Frechet": round(yardstick.floor(LABELS), 3),
        },
    ]
    side = images.shape[-1]
    what = f"{data.name} at {side} x {side}, {len(LABELS):,} images of each"
    save(f"cpu-generators-{side}" if named else "cpu-generators", f"Generators on one CPU core: {what}", rows)


def judged(name: str, generator: Any, seconds: float, yardstick: Yardstick) -> dict[str, object]:
    """Draw images and judge them."""
    start = time.process_time()
    images = generator.sample(LABELS, np.tile(image_index(CHECK_CLIENT, PER_CLASS), 10))
    spent, report = time.process_time() - start, judge(images, LABELS, yardstick)
    return {
        "generator": name,
        "agreement": f"{report.agreement:.1%}",
        "classifier Frechet": round(report.classifier_frechet, 3),
        "suspected copies": f"{report.suspected_copies:.1%}",
        "training, CPU s": round(seconds),
        "images/CPU s": round(len(LABELS) / spent),
    }


def scaled(images: Images) -> Images:
    """Images of 28 x 28, padded to 32 x 32 and averaged over 2 x 2 pixels."""
    padded = functional.pad(torch.from_numpy(np.array(images)).float(), (2, 2, 2, 2))
    return functional.avg_pool2d(padded, 2).round().byte().numpy()


def trained(data: Dataset, images: Images, file: Path) -> Weights:
    """Train the preset to its end, and keep the weights with the seconds that they took."""
    trainer, start = Trainer(images, data.labels, data.classes, preset("quick")), time.process_time()
    while trainer.update_number < trainer.updates:
        trainer.update()
    seconds = time.process_time() - start
    weights = trainer.averaged(dataset=data.name, protocol="clean", preset="quick", cpu_seconds=seconds)
    weights.save(file)
    return weights


if __name__ == "__main__":
    main()
