"""A small convolutional network for tests, demonstrations and digits, quick on one processor core."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fedeas.core.errors import InputError
from fedeas.models.layers import Conv, Norm, norm_layer, norm_relu

GRID = 4
"""Feature maps are averaged down to GRID x GRID cells, whatever the size of the image."""

WIDTHS, HIDDEN = (16, 32), 48  # channels of the two convolutions, and size of the hidden layer


class SmallCNN(nn.Module):
    """Two 3x3 convolutions, the first of stride 2, one hidden layer and a linear head.

    About 30,000 parameters for any image size. A stride takes the place of a max-pool, and there is no
    normalisation by default: digits need neither, and both are slow on one core.

    Args:
        channels: of the input images.
        num_classes: outputs of the head.
        norm: ``"none"``, ``"batch"`` or ``"group"``, after each convolution.
    """

    def __init__(self, channels: int, num_classes: int, norm: Norm = "none") -> None:
        super().__init__()
        self.conv1 = Conv(channels, WIDTHS[0], 3, stride=2, padding=1)
        self.norm1 = norm_layer(norm, WIDTHS[0])
        self.conv2 = Conv(*WIDTHS, 3, padding=1)
        self.norm2 = norm_layer(norm, WIDTHS[1])
        self.hidden = nn.Linear(WIDTHS[1] * GRID**2, HIDDEN)
        self.head = nn.Linear(HIDDEN, num_classes)
        for layer in (self.conv1, self.conv2, self.hidden):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    @staticmethod
    def build(shape: tuple[int, int, int], num_classes: int, stem: str, norm: Norm | None) -> SmallCNN:
        """The model for images of this shape, with the settings of a config."""
        if stem != "3x3":
            raise InputError(f"small-cnn has no stem to choose; leave out stem={stem!r}")
        return SmallCNN(shape[0], num_classes, norm or "none")

    def features(self, x: Tensor) -> Tensor:
        """The input of the head: (B, 48)."""
        x = norm_relu(self.norm1, self.conv1(x))
        x = norm_relu(self.norm2, self.conv2(x))
        if x.shape[2:] != (GRID, GRID):  # 8x8 images need no averaging, which would take time
            x = functional.adaptive_avg_pool2d(x, GRID)
        return functional.relu(self.hidden(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits
