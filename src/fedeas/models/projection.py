"""A projection between features and head, as MOON's paper puts it into its models."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Projected(nn.Module):
    """Another model whose features pass through two linear layers before they reach a head of their own."""

    def __init__(self, base: Any, head_name: str, width: int, num_classes: int) -> None:
        super().__init__()
        size = base.head.in_features
        setattr(base, head_name, nn.Identity())  # the base has no head of its own any more
        self.base = base
        self.projection = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, width))
        self.head = nn.Linear(width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees: (B, width)."""
        features: Tensor = self.projection(self.base.features(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits
