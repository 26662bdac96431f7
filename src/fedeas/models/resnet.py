"""ResNet-18, for small images as well as for ImageNet's.

He, Zhang, Ren, Sun: *Deep Residual Learning for Image Recognition*, CVPR 2016, Table 1 and Fig. 3. Parameters carry
torchvision's names (``layer2.0.downsample.0.weight``, ``fc.bias``), so that its weights load directly.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from fedeas.core.errors import InputError
from fedeas.models.layers import Conv, MaxPool, Norm, norm_layer, norm_relu

Stem = Literal["3x3", "imagenet"]

WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them, Eq. (1) and (2) of the paper."""

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = norm_layer(norm, width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = norm_layer(norm, width)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(_conv(channels, width, 1, stride), norm_layer(norm, width))

    def forward(self, x: Tensor) -> Tensor:
        """Relu(x + F(x)), where x is projected if the shapes differ."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = norm_relu(self.bn1, self.conv1(x))
        return norm_relu(self.bn2, self.conv2(inner), shortcut)


class ResNet18(nn.Module):
    """18 layers: a stem, four stages of two blocks, and a linear head.

    Args:
        channels: of the input images.
        num_classes: outputs of the head.
        stem: ``"3x3"`` keeps the resolution, for images of about 32x32; ``"imagenet"`` is the paper's 7x7 convolution
            of stride 2 and the max-pool after it.
        norm: ``"batch"`` as in the paper, or ``"group"``.
    """

    def __init__(self, channels: int, num_classes: int, stem: Stem = "3x3", norm: Norm = "batch") -> None:
        super().__init__()
        if stem not in get_args(Stem):
            raise InputError(f"stem must be '3x3' or 'imagenet', not {stem!r}")
        if norm == "none":
            raise InputError("resnet18 does not train without normalisation; norm must be 'batch' or 'group'")
        self.stem = stem
        self.conv1 = _conv(channels, WIDTHS[0], 3) if stem == "3x3" else _conv(channels, WIDTHS[0], 7, stride=2)
        self.bn1 = norm_layer(norm, WIDTHS[0])
        self.pool = MaxPool() if stem == "imagenet" else nn.Identity()
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], 1, norm)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], 2, norm)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], 2, norm)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], 2, norm)
        self.fc = nn.Linear(WIDTHS[3], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015, with the fan-out as in torchvision
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def build(shape: tuple[int, int, int], num_classes: int, stem: Stem, norm: Norm | None) -> ResNet18:
        """The model for images of this shape, with the settings of a config."""
        return ResNet18(shape[0], num_classes, stem, norm or "batch")

    @property
    def head(self) -> nn.Linear:
        """The last layer, under the name that all models share."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """The input of the head: (B, 512), the average over the last feature map."""
        x = self.pool(norm_relu(self.bn1, self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return x.flatten(1) if x.shape[2:] == (1, 1) else x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _conv(channels: int, width: int, kernel: int, stride: int = 1) -> Conv:
    return Conv(channels, width, kernel, stride, padding=kernel // 2, bias=False)


def _stage(channels: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels, width, stride, norm), BasicBlock(width, width, 1, norm))
