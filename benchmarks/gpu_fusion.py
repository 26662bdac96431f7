"""Could the clients of a round be trained as one batched model? Four ways to do it.

A step of SGD for several clients at once, each with its own weights and its own batch, ResNet-18 in bf16, recorded as
one CUDA graph. ``loop`` trains them one after the other; ``grouped`` puts clients into the channels of grouped
convolutions; ``unfold`` makes every convolution a batched matrix product; ``vmap`` leaves it to torch.func. Beside them
stand the bounds by arithmetic and by memory, from rates measured on the same GPU. Without a GPU it checks, on tiny
batches in double precision, that all ways give the gradients of separate models.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

import torch
from measure import save
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from fedeas.gpu.cuda_graphs import Captured
from fedeas.models.build import build_model
from fedeas.models.resnet import Stem

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
BATCH, CLIENTS = (64, (1, 5, 10, 20)) if ON_GPU else (4, (2,))
SHAPE, CLASSES, RATE = (3, 32, 32), 10, 1e-3

Weights = Mapping[str, Tensor]
Convolve = Callable[[Tensor, Tensor, int], Tensor]


def shortened(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16) if ON_GPU else tensor


# ---- clients in channels: images (B, K * C, H, W)


def grouped_conv(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    clients = len(weight)
    flat = shortened(weight).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    return functional.conv2d(x, flat, stride=stride, padding=weight.shape[-1] // 2, groups=clients)


def grouped_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, shortened(weight.flatten()), shortened(bias.flatten()), training=True)


# ---- clients in a first axis of their own: images (K, B, H, W, C)


def unfolded_conv(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    clients, width, _, kernel, _ = weight.shape
    _, batch, height, length, _ = x.shape
    taps = shortened(weight).permute(0, 3, 4, 2, 1)  # (K, kernel, kernel, C, O)
    if height == length == 1 and kernel == 3:  # only the middle of the kernel meets the image
        return torch.bmm(x.flatten(1, 3), taps[:, 1, 1]).view(clients, batch, 1, 1, width)
    pad = kernel // 2
    padded = functional.pad(x, (0, 0, pad, pad, pad, pad))
    patches = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (K, B, H', W', C, kernel, kernel)
    rows, columns = patches.shape[2:4]
    matrix = patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(clients, batch * rows * columns, -1)
    return torch.bmm(matrix, taps.flatten(1, 3)).view(clients, batch, rows, columns, width)


def unfolded_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    exact = x.float() if ON_GPU else x
    variance, mean = torch.var_mean(exact, dim=(1, 2, 3), correction=0, keepdim=True)
    scale = weight[:, None, None, None] * torch.rsqrt(variance + 1e-5)
    return (x * shortened(scale) + shortened(bias[:, None, None, None] - mean * scale)).to(x.dtype)


def unfolded_pool(x: Tensor) -> Tensor:
    clients, batch = x.shape[:2]
    flat = x.flatten(0, 1).permute(0, 3, 1, 2)
    pooled = functional.max_pool2d(flat, 3, 2, 1).permute(0, 2, 3, 1)
    return pooled.reshape(clients, batch, *pooled.shape[1:])


# ---- the network over stacked weights


def logits(images: Tensor, weights: Weights, stem: Stem, way: str) -> Tensor:
    """(K, B, classes) from images (K, B, 3, H, W)."""
    clients = len(images)
    conv, norm = (grouped_conv, grouped_norm) if way == "grouped" else (unfolded_conv, unfolded_norm)
    if way == "grouped":
        x = images.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
    else:
        x = images.permute(0, 1, 3, 4, 2)
    x = shortened(x)

    def layer(x: Tensor, name: str, number: str, stride: int = 1) -> Tensor:
        x = conv(x, weights[f"{name}conv{number}.weight"], stride)
        return norm(x, weights[f"{name}bn{number}.weight"], weights[f"{name}bn{number}.bias"])

    x = functional.relu(layer(x, "", "1", 2 if stem == "imagenet" else 1))
    if stem == "imagenet":
        x = functional.max_pool2d(x, 3, 2, 1) if way == "grouped" else unfolded_pool(x)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}.", 2 if stage > 1 and block == 0 else 1
            inner = layer(functional.relu(layer(x, name, "1", stride)), name, "2")
            if stride == 2:
                x = conv(x, weights[f"{name}downsample.0.weight"], stride)
                x = norm(x, weights[f"{name}downsample.1.weight"], weights[f"{name}downsample.1.bias"])
            x = functional.relu(inner + x)
    features = x.mean(dim=(2, 3))
    if way == "grouped":
        features = features.view(BATCH, clients, -1).transpose(0, 1)
    return torch.baddbmm(
        weights["fc.bias"][:, None], features.to(weights["fc.bias"].dtype), weights["fc.weight"].transpose(1, 2)
    )


def loss(images: Tensor, labels: Tensor, weights: Weights, stem: Stem, way: str) -> Tensor:
    """The sum of the clients' mean losses, whose gradients are those of each client alone."""
    scores = logits(images, weights, stem, way)
    return functional.cross_entropy(scores.flatten(0, 1), labels.flatten()) * len(images)


class Step:
    """One step of SGD for all clients; called again, the next one."""

    def __init__(self, way: str, clients: int, stem: Stem) -> None:
        self.way, self.clients, self.stem = way, clients, stem
        models = [build_model("resnet18", SHAPE, CLASSES, seed=seed, stem=stem) for seed in range(clients)]
        self.model = models[0].to(DEVICE)
        names = [name for name, _ in self.model.named_parameters()]
        stacked = {
            name: torch.stack([dict(m.named_parameters())[name].detach().cpu() for m in models]) for name in names
        }
        self.weights = {name: tensor.to(DEVICE).requires_grad_(way != "vmap") for name, tensor in stacked.items()}
        shapes = dict(self.model.named_buffers())
        self.buffers = {
            name: torch.zeros_like(each).repeat(clients, *[1] * each.dim()) for name, each in shapes.items()
        }
        self.images = torch.randn(clients, BATCH, *SHAPE, device=DEVICE)
        self.labels = torch.randint(CLASSES, (clients, BATCH), device=DEVICE)

    def gradients(self) -> list[Tensor]:
        """Of all clients, stacked as the weights are."""
        if self.way == "vmap":
            return list(vmap(grad(self._alone))(self.weights, self.buffers, self.images, self.labels).values())
        if self.way == "loop":
            each = [self._one_client(client) for client in range(self.clients)]
            return [torch.stack(slopes) for slopes in zip(*each, strict=True)]
        value = loss(self.images, self.labels, self.weights, self.stem, self.way)
        return list(torch.autograd.grad(value, list(self.weights.values())))

    def _one_client(self, client: int) -> tuple[Tensor, ...]:
        own = {name: tensor[client] for name, tensor in self.weights.items()}
        buffers = {name: tensor[client].clone() for name, tensor in self.buffers.items()}
        value = self._alone(own, buffers, self.images[client], self.labels[client])
        return torch.autograd.grad(value, list(own.values()))

    def _alone(self, weights: Weights, buffers: Weights, images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU, cache_enabled=False):
            scores = functional_call(self.model, ({**weights}, {**buffers}), (images,))
        return functional.cross_entropy(scores.to(weights["fc.bias"].dtype), labels)

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Take the step."""
        with torch.enable_grad():
            slopes = self.gradients()
        torch._foreach_add_([tensor.data for tensor in self.weights.values()], slopes, alpha=-RATE)
        return slopes[0]


def seconds_of(work: Callable[[], object], repeats: int = 30) -> float:
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def bounds(stem: Stem) -> dict[str, float]:
    """Images a second that arithmetic alone, and memory alone, would allow one client's step at the measured rates."""
    counter = FlopCounterMode(display=False)
    model = build_model("resnet18", SHAPE, CLASSES, seed=0, stem=stem)
    with counter:
        functional.cross_entropy(model(torch.randn(BATCH, *SHAPE)), torch.zeros(BATCH, dtype=torch.int64)).backward()
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    flops = 2 * 8192**3 / seconds_of(lambda: a @ a)
    block = torch.empty(2**28, device=DEVICE)
    bandwidth = 2 * block.numel() * 4 / seconds_of(lambda: block.add_(1))
    # Weights are read in short form forward and backward, gradients written and read, the weights themselves updated.
    moved = sum(p.numel() for p in model.parameters()) * (4 + 2 + 2 + 2 + 4 + 4 + 8)
    return {
        "arithmetic": BATCH * flops / counter.get_total_flops(),
        "memory": BATCH * bandwidth / moved,
        "measured TFLOP/s": flops / 1e12,
        "measured GB/s": bandwidth / 1e9,
    }


def check() -> None:
    """On a CPU, in double precision: all ways give the gradients of separate models."""
    torch.set_default_dtype(torch.float64)
    for stem in ("imagenet", "3x3"):
        torch.manual_seed(0)
        reference = Step("loop", CLIENTS[0], stem)
        wanted = reference.gradients()
        for way in ("grouped", "unfold", "vmap"):
            step = Step(way, CLIENTS[0], stem)
            step.images, step.labels = reference.images, reference.labels
            errors = [float((a - b).norm() / b.norm()) for a, b in zip(step.gradients(), wanted, strict=True)]
            print(f"{stem} {way}: gradients differ by {max(errors):.1e} of their norm at most", flush=True)


def measure() -> None:
    rows: list[dict[str, object]] = []
    for stem in ("imagenet", "3x3"):
        limits = bounds(stem)
        print(stem, limits, flush=True)
        for clients in CLIENTS:
            for way in ("loop", "grouped", "unfold", "vmap"):
                try:
                    step = Captured(Step(way, clients, stem), DEVICE)
                    speed = clients * BATCH / seconds_of(step)
                except RuntimeError as error:  # no kernel, no memory, or nothing that can be recorded
                    print(f"{stem} {clients} clients, {way}: {str(error).splitlines()[0]}", flush=True)
                    continue
                finally:
                    step = None
                    torch.cuda.empty_cache()
                rows.append({"stem": stem, "clients": clients, "way": way, "images a second": round(speed)})
                print(f"{stem} {clients} clients, {way}: {speed:,.0f} images/s", flush=True)
        for way in ("arithmetic", "memory"):
            rows.append({"stem": stem, "clients": 1, "way": f"bound by {way}", "images a second": round(limits[way])})
    save("gpu-fusion", f"One step of SGD for several clients, ResNet-18 in bf16, batches of {BATCH}", rows)


if __name__ == "__main__":
    sys.exit(measure() if ON_GPU else check())
