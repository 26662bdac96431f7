"""Is the fast sampler worse than the paper's 250 ancestral steps? On the digits weights, judged by one classifier."""

from __future__ import annotations

import time

import numpy as np
import torch
from measure import save

from fedeas.core.arrays import cores
from fedeas.data.sources import load_dataset
from fedeas.generators.base import image_index
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.quality.classifier import Classifier
from fedeas.generators.quality.metrics import CHECK_CLIENT, Yardstick, judge

PER_CLASS = 100
SAMPLERS = [("ddpm", 250), ("ddim", 50), ("dpm", 20), ("dpm", 10)]


def main() -> None:
    torch.set_num_threads(cores())
    data = load_dataset("digits")
    classifier = Classifier.train(data.images, data.labels, data.num_classes)
    yardstick = Yardstick.of(classifier, data.images, data.test_images, data.test_labels)
    labels, rows = np.repeat(np.arange(10), PER_CLASS), list[dict[str, object]]()
    for solver, steps in SAMPLERS:
        generator = DiffusionGenerator(Weights.load("digits"), solver=solver, steps=steps)
        start = time.perf_counter()
        images = generator.sample(labels, np.tile(image_index(CHECK_CLIENT, PER_CLASS), 10))
        spent, report = time.perf_counter() - start, judge(images, labels, yardstick)
        rows.append(
            {
                "sampler": f"{solver}-{steps}" + (" (the default)" if (solver, steps) == ("dpm", 10) else ""),
                "images/s": round(len(labels) / spent, 1),
                "agreement": f"{report.agreement:.2%}",
                "classifier Frechet": round(report.classifier_frechet, 3),
                "suspected copies": f"{report.suspected_copies:.1%}",
            }
        )
    save("samplers", f"Samplers on the digits weights, {len(labels):,} images of each", rows)


if __name__ == "__main__":
    main()
