"""The networks: ResNet-18, for small images as well as for ImageNet's, and a small CNN, quick on one processor core.

He, Zhang, Ren, Sun: *Deep Residual Learning for Image Recognition*, CVPR 2016, Table 1 and Fig. 3. Parameters carry
torchvision's names (``layer2.0.downsample.0.weight``, ``fc.bias``), so that its weights load directly.
"""

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from fedeas.core.errors import InputError
from fedeas.models.layers import Conv, MaxPool, Norm, norm_layer, norm_relu

Stem = Literal["3x3", "imagenet"]
Shape = tuple[int, int, int]

WIDTHS = (64, 128, 256, 512)

GRID = 4
"""The small network averages feature maps down to GRID x GRID cells, whatever the size of the image."""
SMALL_WIDTHS, HIDDEN = (16, 32), 48  # channels of its two convolutions, and size of its hidden layer


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
        shape: channels, height and width of the images.
        num_classes: outputs of the head.
        stem: ``"3x3"`` keeps the resolution, for images of about 32x32; ``"imagenet"`` is the paper's 7x7 convolution
            of stride 2 and the max-pool after it.
        norm: ``"batch"`` as in the paper, the default, or ``"group"``.
    """

    def __init__(self, shape: Shape, num_classes: int, stem: Stem, norm: Norm | None) -> None:
        super().__init__()
        norm = norm or "batch"
        if stem not in get_args(Stem):
            raise InputError(f"stem must be '3x3' or 'imagenet', not {stem!r}")
        if norm == "none":
            raise InputError("resnet18 does not train without normalisation; norm must be 'batch' or 'group'")
        self.stem = stem
        self.conv1 = _conv(shape[0], WIDTHS[0], 3) if stem == "3x3" else _conv(shape[0], WIDTHS[0], 7, stride=2)
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


class SmallCNN(nn.Module):
    """Two 3x3 convolutions, the first of stride 2, one hidden layer and a linear head.

    About 30,000 parameters for any image size. A stride takes the place of a max-pool, and there is no
    normalisation by default: digits need neither, and both are slow on one core.

    Args:
        shape: channels, height and width of the images.
        num_classes: outputs of the head.
        stem: always ``"3x3"``.
        norm: ``"none"``, the default, ``"batch"`` or ``"group"``, after each convolution.
    """

    def __init__(self, shape: Shape, num_classes: int, stem: Stem, norm: Norm | None) -> None:
        super().__init__()
        if stem != "3x3":
            raise InputError(f"small-cnn has no stem to choose; leave out stem={stem!r}")
        self.conv1 = Conv(shape[0], SMALL_WIDTHS[0], 3, stride=2, padding=1)
        self.norm1 = norm_layer(norm or "none", SMALL_WIDTHS[0])
        self.conv2 = Conv(*SMALL_WIDTHS, 3, padding=1)
        self.norm2 = norm_layer(norm or "none", SMALL_WIDTHS[1])
        self.hidden = nn.Linear(SMALL_WIDTHS[1] * GRID**2, HIDDEN)
        self.head = nn.Linear(HIDDEN, num_classes)
        for layer in (self.conv1, self.conv2, self.hidden):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

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
