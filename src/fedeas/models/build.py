"""Classifiers by name: each has `features(x)`, a linear `head`, and weights that depend only on a seed or a file."""

import importlib
import io
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from safetensors.torch import save
from torch import Tensor, nn

from fedeas.core.arrays import stream_seed
from fedeas.core.errors import InputError, reason_of
from fedeas.core.files import PathLike
from fedeas.core.provenance import NOT_KNOWN, TEST, Answer, DatasetParts, Seen, check_clean, seen_by, which_images
from fedeas.core.spec import failed, find_callable, installed, own_code_named, read_call
from fedeas.core.weight_files import (
    CHOICES,
    SUFFIX,
    TORCHVISION,
    digest_of_tensors,
    model_weights,
    read_tensors,
    weights_digest,
)
from fedeas.models.layers import Norm
from fedeas.models.networks import ResNet18, Shape, SmallCNN, Stem


class Projected(nn.Module):
    """A model with two linear layers between its features and a new head, as in MOON's paper."""

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


Model = ResNet18 | SmallCNN | Projected

MODELS: dict[str, Callable[[Shape, int, Stem, Norm | None], Model]] = {
    "resnet18": ResNet18,
    "small-cnn": SmallCNN,
}
"""How each model is built, by name."""
OTHER_START = "or set model.weights=cifar100-imagenet-stem (make it with `fedeas pretrain cifar100 --stem imagenet`)"
PHOTO_SIDE = 16
"""Images with a side of this many pixels or more suit a ResNet-18; smaller ones suit the small network."""


def suited_to(shape: Shape) -> str:
    """Name of the model for images of this shape: the small network if all sides are below 16 pixels.

    >>> suited_to((1, 8, 8)), suited_to((3, 32, 32))
    ('small-cnn', 'resnet18')
    """
    return "small-cnn" if max(shape[1:]) < PHOTO_SIDE else "resnet18"


def build_model(
    name: str,
    shape: Shape,
    num_classes: int,
    *,
    seed: int,
    stem: Stem = "3x3",
    norm: Norm | None = None,
    weights: PathLike = "",
    projection: int = 0,
) -> Model:
    """A classifier on the CPU; its initial weights depend on `seed` alone, and no random state changes.

    Args:
        name: ``"resnet18"``, ``"small-cnn"``, or ``"python:module:name(...)"`` for a model of one's own (`own_model`).
        shape: channels, height and width of the images.
        num_classes: outputs of the head.
        seed: seed of the initial weights.
        stem: for a ResNet, ``"3x3"`` for small images or ``"imagenet"``.
        norm: ``"batch"``, ``"group"`` or ``"none"``; by default what suits the model.
        weights: empty, a ``.safetensors`` file, ``"torchvision"`` for its ResNet-18 trained on ImageNet, or a name
            such as ``"cifar100-pretrained"`` for a file of ``fedeas pretrain``. A head for another number of classes
            is not loaded and keeps its initial weights; everything else must fit. Half precision becomes float32.
        projection: width of a two-layer projection between features and head, as in MOON's paper; 0 for none.

    >>> build_model("small-cnn", (1, 8, 8), 10, seed=0).head.out_features
    10
    """
    if len(shape) != 3 or min(*shape, num_classes) < 1 or projection < 0:
        given = f"shape={shape}, num_classes={num_classes}, projection={projection}"
        raise InputError(
            f"{given}: give (channels, height, width), each 1 or more like num_classes; projection 0 or more"
        )
    # Weights are drawn on the CPU, so that they are the same on every device; random states of GPUs do not change.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(stream_seed("model", seed))
        make = MODELS.get(name) or partial(own_model, name)
        model = make(shape, num_classes, stem, norm)
    if weights:
        path = model_weights(weights)
        if path is not None and not str(path).endswith(SUFFIX):
            raise InputError(f"{path}: weights must be {CHOICES}")
        tensors = torchvision_weights(name) if path is None else read_tensors(path)[1]
        source = TORCHVISION if path is None else path
        own, prefix, kept = model.state_dict(), _head_name(model), set[str]()
        weight, bias, needed = tensors.get(f"{prefix}.weight"), tensors.get(f"{prefix}.bias"), model.head.weight.shape
        if weight is not None and bias is not None and weight.shape != needed and weight.shape[1:] == needed[1:]:
            # A head with the same features for another number of classes is not loaded.
            kept = {f"{prefix}.weight", f"{prefix}.bias"} if bias.shape == weight.shape[:1] else kept
        for key in {**own, **tensors}:
            ours, theirs = own.get(key), tensors.get(key)
            if ours is not None and theirs is not None:
                halved = ours.dtype == torch.float32 and theirs.dtype in (torch.float16, torch.bfloat16)
                if key in kept or (ours.shape == theirs.shape and (ours.dtype == theirs.dtype or halved)):
                    continue
            forms = f"{_form(theirs)}, the model has {_form(ours)}"
            raise InputError(f"{source}: {key} is {forms}; check name, shape, stem and norm")
        model.load_state_dict({key: own[key] if key in kept else tensors[key] for key in own})
    if not projection:
        return model
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(stream_seed("projection", seed))
        return Projected(model, _head_name(model), projection, num_classes)


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the state dict's trainable tensors, in its order.

    >>> parameter_names(nn.BatchNorm2d(3))
    ('weight', 'bias')
    """
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return tuple(name for name in model.state_dict() if name in trainable)


def _head_name(model: Model) -> str:
    return str(next(name for name, module in model.named_modules() if module is model.head))


def own_model(name: str, shape: Shape, num_classes: int, stem: Stem, norm: Norm | None) -> Model:
    """What a user's function or class makes of ``(shape, num_classes, **arguments)``.

    It must be a `torch.nn.Module` with a method `features` and a linear layer `head` on top of them.
    """
    if not own_code_named(name.partition("(")[0], MODELS, "model"):
        raise InputError(f"no model is called {name!r}; choose one of {', '.join([*MODELS, *installed('model')])}")
    call = read_call(name, MODELS, "model")
    if stem != "3x3" or norm is not None:
        raise InputError(f"{call.name} takes its own arguments; leave out model.stem and model.norm")
    make = find_callable(call.name, "model")
    try:
        model = make(shape, num_classes, **call.keywords)
    except Exception as error:
        raise failed(call.name, error) from error
    head = getattr(model, "head", None)
    if not isinstance(model, nn.Module) or not isinstance(head, nn.Linear) or not hasattr(model, "features"):
        raise InputError(f"{call.name} must make a torch.nn.Module with features(x) and a torch.nn.Linear as its head")
    if head.out_features != num_classes:
        raise InputError(f"{call.name}: its head has {head.out_features} outputs for {num_classes} classes")
    return cast(Model, model)


def torchvision_weights(name: str = "resnet18") -> dict[str, Tensor]:
    """The tensors of torchvision's model of this name, trained on ImageNet."""
    if name != "resnet18":
        raise InputError(f"torchvision has no weights for {name}; give a .safetensors file")
    try:
        models = importlib.import_module("torchvision.models")
        return dict(models.ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=False))
    except (ImportError, OSError, RuntimeError) as error:
        fact = f"weights 'torchvision' cannot be had ({reason_of(error)})"
        raise InputError(f"{fact}; pip install torchvision and check the network, {OTHER_START}") from None


def _form(tensor: Tensor | None) -> str:
    if tensor is None:
        return "nothing"
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind} {'x'.join(map(str, tensor.shape)) or 'scalar'}"


def start_digest(place: str) -> str:
    """The digest of initial weights, given by name, path or ``"torchvision"``; empty if there are none.

    >>> start_digest("")
    ''
    """
    if place != TORCHVISION:
        path = model_weights(place)
        return "" if path is None else weights_digest(path)
    try:
        return digest_of_tensors(io.BytesIO(save(torchvision_weights())))
    except InputError:  # no run can start either
        return ""


def start_seen(place: str) -> Seen | None:
    """Which images the initial weights were trained on; None if there are no weights."""
    path = model_weights(place)
    if path is None:
        return NOT_KNOWN if place == TORCHVISION else None
    return seen_by(path)


def check_clean_start(place: str, dataset: str) -> tuple[str, ...]:
    """Refuse initial weights that have seen test images of the dataset; return sentences on what is not known.

    >>> check_clean_start("torchvision", "cifar10")
    ('torchvision: which images it has seen',)
    """
    seen, data = start_seen(place), DatasetParts(dataset)
    if seen is None:
        return ()
    check_clean(place, seen, data, "choose other model.weights, or none")
    return (which_images(place),) if seen.answer(data, TEST) is Answer.UNKNOWN else ()
