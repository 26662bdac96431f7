"""Training recipes of the classifiers that judge images."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedeas.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """A training with SGD and Nesterov momentum; the rate rises linearly, then falls linearly to 0."""

    epochs: int
    batch_size: int
    peak_rate: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.05
    warm_up: float = 0.2
    """Share of the steps in which the rate rises."""

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = max(1.0, self.warm_up * steps)
        return self.peak_rate * min((step + 1) / rising, (steps - step) / max(1.0, steps - rising), 1.0)


RECIPES = {
    "resnet18": Recipe(epochs=15, batch_size=512, peak_rate=0.3),
    "small-cnn": Recipe(epochs=50, batch_size=64, peak_rate=0.05),
}
"""Recipes by model: 15 passes over CIFAR-10 for a ResNet-18, 50 over scikit-learn's digits for a small network."""


def recipe_for(architecture: str, epochs: int | None) -> Recipe:
    """The recipe of a model, with this number of epochs if given."""
    recipe = RECIPES[architecture]
    if epochs is None:
        return recipe
    if epochs < 1:
        raise InputError(f"epochs must be 1 or more, not {epochs}")
    return replace(recipe, epochs=epochs)
