"""A model of one's own: a torch module with `features` and a linear `head`.

From the root of the repository:

    fedeas run digits "model.name=python:examples.own_model:Perceptron(hidden=32)"
"""

from __future__ import annotations

from math import prod

from torch import Tensor, nn


class Perceptron(nn.Module):
    """One hidden layer. FedEAS gives the shape of an image and the number of classes, the spec gives the rest."""

    def __init__(self, shape: tuple[int, int, int], num_classes: int, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = nn.Linear(prod(shape), hidden)
        self.head = nn.Linear(hidden, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees."""
        features: Tensor = self.hidden(x.flatten(1)).relu()
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.features(x))
        return logits
