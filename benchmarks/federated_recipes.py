"""What does a federated generator gain from more bytes? Recipes side by side, all trained by the same clients.

    python benchmarks/federated_recipes.py --recipes "rounds=50, steps=4" "rounds=50, steps=4, moments=all"

prints quality, the loss on test images at some noise levels, and megabytes per client. On one GPU, for CIFAR-10:

    python benchmarks/federated_recipes.py --dataset cifar10 --clients 100 --data-root DIR --device cuda \
        --of "diffusion(solver=dpm-snr, steps=13)" --recipes "start=cifar100, rounds=10, steps=20"
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from diffusers import DDPMScheduler
from measure import save

from fedeas.config import checked_config
from fedeas.core.weight_files import generator_weights
from fedeas.data.dataset import Dataset
from fedeas.data.sources import load_dataset
from fedeas.federation.clients import train_generator
from fedeas.generators.diffusion.updates import squared_errors
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.kinds import Diffusion, GeneratorContext, federated_in, parse_generator
from fedeas.generators.quality.classifier import Classifier
from fedeas.generators.quality.metrics import Yardstick, measure_generator

LEVELS, IMAGES = (100, 400, 800, 950), 2000


@torch.no_grad()
def test_losses(weights: Weights, data: Dataset, device: str) -> list[float]:
    """The mean loss of test images at each of `LEVELS`, with the same noise for all weights."""
    scheduler, network = DDPMScheduler(**weights.network.scheduler_settings()), weights.build().to(device)
    chosen = np.random.default_rng(0).permutation(len(data.test_labels))[:IMAGES]
    random, sums = torch.Generator().manual_seed(0), np.zeros(len(LEVELS))
    for part in np.array_split(chosen, -(-len(chosen) // 250)):
        clean = torch.from_numpy(np.asarray(data.test_images)[part]).to(device).float() / 127.5 - 1
        classes = torch.from_numpy(np.asarray(data.test_labels)[part]).to(device)
        for place, level in enumerate(LEVELS):
            noise = torch.randn(clean.shape, generator=random).to(device)
            rest = noise, torch.full_like(classes, level), classes
            sums[place] += squared_errors(network, scheduler, weights.network.target, clean, *rest).sum().item()
    return list(sums / len(chosen))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--dataset", default="digits")
    asked.add_argument("--clients", type=int, default=20)
    asked.add_argument("--of", default="diffusion")
    asked.add_argument("--recipes", nargs="+", required=True)
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--data-root")
    asked.add_argument("--name", help="keep the table under this name")
    given = asked.parse_args()
    data, rows = load_dataset(given.dataset, given.data_root), list[dict[str, object]]()
    judge = Classifier.train(data.images, data.labels, data.num_classes, device=given.device)
    yardstick = Yardstick.of(judge, data.images, data.test_images, data.test_labels)
    context = GeneratorContext(data.name, data.images, data.labels, data.classes, "any", given.device)
    pooled = parse_generator(given.of)
    for recipe in ("pooled", *given.recipes):
        with TemporaryDirectory() as folder:
            file, sent = generator_weights(data.name), 0.0
            if recipe != "pooled":
                config = checked_config(
                    {
                        "generator": f"federated(of={given.of}, {recipe})",
                        "data": {"dataset": given.dataset, "protocol": "clean", "root": given.data_root},
                        "partition": {"scheme": "dirichlet", "clients": given.clients, "alpha": 0.1},
                        "engine": {"device": given.device, "compile": given.device != "cpu"},
                    }
                )
                trained, settings = train_generator(config, Path(folder)), federated_in(config.generator)
                assert trained is not None and settings is not None and isinstance(pooled, Diffusion)
                file, sent = trained, sum(Weights.load(trained).provenance["federated"]["bytes"].values())
            weights = Weights.load(file)
            report = measure_generator(replace(pooled, weights=str(file)).ready(context), yardstick, 200)
        losses = test_losses(weights, data, given.device)
        rows.append(
            {
                "recipe": recipe,
                "MB a client": round(sent / 1e6, 1),
                "minutes": weights.provenance.get("minutes"),
                "agreement": f"{report.agreement:.1%}",
                "classifier Frechet": round(report.classifier_frechet, 3),
                **{f"loss at {level}": f"{loss:.5f}" for level, loss in zip(LEVELS, losses, strict=True)},
            }
        )
        print(rows[-1], flush=True)
    if given.name:
        save(given.name, f"Federated generators, {given.dataset}, K={given.clients}", rows)


if __name__ == "__main__":
    main()
