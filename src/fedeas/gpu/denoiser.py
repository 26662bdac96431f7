"""The diffusion network with fewer, larger GPU kernels: for sampling only, in the layout and precision of the network.

diffusers' own forward spends two thirds of its time on norms, copies and sums between convolutions. Here torch does
convolutions and large matrix products; our kernels do the rest, with biases and sums included:

- the bias of a block's first convolution and the time embedding shift the input of its second norm;
- the bias of the second convolution, the shortcut and its bias are part of the sum at the end;
- skip connections are read in place, without concatenating;
- an image is not doubled before a convolution: four 2 x 2 convolutions give the four kinds of pixels, in less than
  half the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from diffusers import UNet2DModel
from diffusers.models.unets.unet_2d import UNet2DOutput
from torch import Tensor, nn
from torch.nn import functional

from fedeas.gpu.memory import load_kernels

_kernels: Callable[[], Any] = partial(load_kernels, "denoising_kernels")

PADDED = 8
"""Convolutions on a GPU are fast for images with this many channels."""


def can_fuse(network: Any) -> bool:
    """Whether `FusedNetwork` can evaluate this network of `Network.build` on its device."""
    return _kernels() is not None and type(network) is UNet2DModel and network.config.in_channels < PADDED


class FusedNetwork:
    """Computes the forward pass of a UNet2DModel of `Network.build`, up to rounding.

    Args:
        network: in its precision and on its device, channels last. Its weights are copied.
    """

    def __init__(self, network: Any) -> None:
        self.network = network
        self.conv_in = _with_bias_as_channel(network.conv_in)
        self.conv_out = _padded_outputs(network.conv_out)
        self.norm_out = _Norm(network.conv_norm_out)
        spans = _Spans()
        self.down = [
            (_layers(block, spans), block.downsamplers[0].conv if block.downsamplers else None)
            for block in network.down_blocks
        ]
        self.middle = _layers(network.mid_block, spans)
        self.up: list[tuple[_Layers, Callable[[Tensor], Tensor]]] = [
            (_layers(block, spans), _Double(block.upsamplers[0].conv) if block.upsamplers else _same)
            for block in network.up_blocks
        ]
        self.shift_weight, self.shift_bias = torch.cat(spans.weights), torch.cat(spans.biases)

    def __call__(self, sample: Tensor, timestep: Tensor, class_labels: Tensor) -> UNet2DOutput:
        """The network's prediction."""
        # the shifts of the second norms of all blocks, side by side
        known = self.network.time_proj(timestep).to(self.shift_weight.dtype)
        known = self.network.time_embedding(known) + self.network.class_embedding(class_labels)
        shifts = functional.linear(functional.silu(known), self.shift_weight, self.shift_bias)
        skips = [functional.conv2d(_with_ones(sample), self.conv_in, padding=1)]
        for layers, shrink in self.down:
            for residual, attention in layers:
                skips.append(attention(residual(skips[-1], shifts)))
            if shrink is not None:
                skips.append(shrink(skips[-1]))
        x = skips[-1]
        for residual, attention in self.middle:
            x = attention(residual(x, shifts))
        for layers, double in self.up:
            for residual, attention in layers:
                x = attention(residual(x, shifts, skips.pop()))
            x = double(x)
        x = functional.conv2d(self.norm_out(x), self.conv_out, padding=1)
        return UNet2DOutput(sample=x[:, : sample.shape[1]] + self.network.conv_out.bias[:, None, None])


class _Spans:
    """Weights of the time embedding of all blocks, for one matrix product."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []
        self.biases: list[Tensor] = []
        self.end = 0

    def add(self, block: Any) -> slice:
        """Add a residual block; returns the columns of its shifts."""
        start, self.end = self.end, self.end + block.conv1.out_channels
        self.weights.append(block.time_emb_proj.weight)
        self.biases.append(block.time_emb_proj.bias + block.conv1.bias)
        return slice(start, self.end)


class _Norm:
    """Group norm, followed by SiLU by default."""

    def __init__(self, norm: nn.GroupNorm, silu: bool = True) -> None:
        self.norm, self.silu = norm, silu
        self.no_shift = torch.zeros_like(norm.bias)

    def __call__(self, x: Tensor, other: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
        norm = self.norm
        shift = self.no_shift.expand(len(x), -1) if shift is None else shift
        result: Tensor = _kernels().group_norm(
            x, norm.weight, norm.bias, norm.num_groups, norm.eps, shift=shift, other=other, silu=self.silu
        )
        return result


class _Residual:
    """A ResnetBlock2D."""

    def __init__(self, block: Any, spans: _Spans) -> None:
        self.span = spans.add(block)
        self.norm1, self.norm2 = _Norm(block.norm1), _Norm(block.norm2)
        self.conv1, self.conv2 = block.conv1.weight, block.conv2.weight
        self.bias, self.shortcut = block.conv2.bias, None
        if block.conv_shortcut is not None:
            self.bias = self.bias + block.conv_shortcut.bias
            self.shortcut = block.conv_shortcut.weight.flatten(1).contiguous()

    def __call__(self, x: Tensor, shifts: Tensor, skip: Tensor | None = None) -> Tensor:
        h = functional.conv2d(self.norm1(x, skip), self.conv1, padding=1)
        h = functional.conv2d(self.norm2(h, shift=shifts[:, self.span]), self.conv2, padding=1)
        kernels: Any = _kernels()
        result: Tensor = (
            kernels.add_to(h, self.bias, x)
            if self.shortcut is None
            else kernels.project(x, self.shortcut, self.bias, h, skip)
        )
        return result


class _Attention:
    """Self-attention over the pixels of an image; the result is written over x, which nothing else reads."""

    def __init__(self, attention: Any) -> None:
        self.norm = _Norm(attention.group_norm, silu=False)
        parts = attention.to_q, attention.to_k, attention.to_v
        self.weight = torch.cat([part.weight for part in parts])
        self.bias = torch.cat([part.bias for part in parts])
        self.head = self.weight.shape[0] // 3 // attention.heads
        self.out: Any = attention.to_out[0]

    def __call__(self, x: Tensor) -> Tensor:
        kernels: Any = _kernels()
        tokens = self.norm(x).permute(0, 2, 3, 1).flatten(1, 2)
        qkv = functional.linear(tokens, self.weight, self.bias)
        if qkv.shape[1] <= kernels.MOST_TOKENS:
            mixed: Tensor = kernels.attention(qkv, self.head)
        else:
            heads = qkv.view(*qkv.shape[:2], 3, -1, self.head).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        mixed = mixed.view(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2)
        result: Tensor = kernels.project(mixed, self.out.weight, self.out.bias, x)
        return result


def _same(x: Tensor) -> Tensor:
    return x


_Layers = list[tuple[_Residual, Callable[[Tensor], Tensor]]]


def _layers(block: Any, spans: _Spans) -> _Layers:
    """The residual blocks of a block, each with the attention that follows it, if there is one."""
    attentions = map(_Attention, getattr(block, "attentions", None) or ())
    return [(_Residual(each, spans), next(attentions, _same)) for each in block.resnets]


class _Double:
    """Twice the resolution, then a 3 x 3 convolution, which sees only 2 x 2 different pixels."""

    def __init__(self, conv: Any) -> None:
        self.weight, self.bias = doubling_weights(conv.weight), conv.bias

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = _kernels().interleave(functional.conv2d(x, self.weight, padding=1), self.bias)
        return result


def doubling_weights(weight: Tensor) -> Tensor:
    """2 x 2 convolutions for the four kinds of pixels of a doubled image: (4 x outputs, inputs, 2, 2)."""
    exact = weight.float()
    # Row 2y sees rows y - 1, y, y of the small image; row 2y + 1 sees y, y, y + 1. The same holds for columns.
    pairs = exact.new_tensor([[[1, 0, 0], [0, 1, 1]], [[1, 1, 0], [0, 0, 1]]])
    quarters = torch.einsum("iay,jbx,ocyx->ijocab", pairs, pairs, exact)
    return quarters.flatten(0, 2).to(weight.dtype).contiguous(memory_format=torch.channels_last)


def _with_bias_as_channel(conv: Any) -> Tensor:
    """Weights for an image with a channel of ones, as `_with_ones` makes it; the bias is the weight of that channel."""
    weight: Tensor = conv.weight.new_zeros(conv.out_channels, PADDED, *conv.kernel_size)
    weight[:, : conv.in_channels] = conv.weight
    weight[:, conv.in_channels, 1, 1] = conv.bias
    return weight.contiguous(memory_format=torch.channels_last)


def _with_ones(sample: Tensor) -> Tensor:
    images, channels, height, width = sample.shape
    shape = images, PADDED, height, width
    padded = torch.empty(shape, dtype=sample.dtype, device=sample.device, memory_format=torch.channels_last)
    padded[:, :channels], padded[:, channels:] = sample, 1
    return padded


def _padded_outputs(conv: Any) -> Tensor:
    weight: Tensor = conv.weight.new_zeros(PADDED, conv.in_channels, *conv.kernel_size)
    weight[: conv.out_channels] = conv.weight
    return weight.contiguous(memory_format=torch.channels_last)
