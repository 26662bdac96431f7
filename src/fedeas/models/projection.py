"""A projection between features and head, as in the models of MOON's paper."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Projected(nn.Module):
    """A model with two linear layers between its features and a new head."""

    def __init__(self, base: Any, head_name: str, width: int, num_classes: int) -> None:
        super().__init__()
        size = base.head.in_features
        setattr(base, head_name, nn.Identity())  # the new head replaces that of the base
        self.base = base
        self.projection = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, width))
        self.head = nn.Linear(width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the head: (B, width)."""
        features: Tensor = self.projection(self.base.features(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits
