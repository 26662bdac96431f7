"""One model for several clients at once: every layer holds the weights of all of them, stacked along a first axis.

Images of the clients follow each other in the batch, each client with the same number of rows. Layers without weights
(ReLU, pooling, sums) work as they are; convolutions, norms and linear layers are replaced by those of `stacked_layers`.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property

import torch
from torch import Tensor, nn

from fedeas.core.devices import copy_all
from fedeas.fast.stacked_layers import (
    FastMaxPool,
    KernelWindow,
    StackedBatchNorm,
    StackedBlock,
    StackedConv,
    StackedGroupNorm,
    StackedLinear,
)
from fedeas.models.layers import BatchNorm, Conv, MaxPool
from fedeas.models.networks import BasicBlock


class Stack:
    """A model stacked for several clients.

    `models` has a model for each client, in the stack's own memory; only the kernels of convolutions have another
    layout in the stack. `load` takes them over from the models, `unload` gives them back.

    Args:
        model: the model of one client; its weights are not copied.
        clients: number of clients.
        shape: channels, height and width of the images.
        whole: also keep kernel weights that are never applied to a pixel; weight decay changes them.
    """

    def __init__(self, model: nn.Module, clients: int, shape: tuple[int, int, int], whole: bool = False) -> None:
        self.clients = clients
        device = next(model.parameters()).device
        self.valid = torch.zeros(clients, dtype=torch.int32, device=device)
        self.model = copy.deepcopy(model)
        sizes = _map_sizes(model, shape)
        for name, module in list(self.model.named_modules()):
            if type(module) is BasicBlock:
                module.__class__ = StackedBlock  # it has the same layers
            twin = self._twin(module, sizes.get(name, (0, 0)), whole)
            if twin is not None:
                parent, _, last = name.rpartition(".")
                setattr(self.model.get_submodule(parent), last, twin)
        own = model.state_dict()
        names = [f"{name}.weight" for name in self.convolutions]
        self.kernels = {name: own[name].new_zeros(clients, *own[name].shape) for name in names}
        self.models = [self._model_of(model, client) for client in range(clients)]

    def _model_of(self, model: nn.Module, client: int) -> nn.Module:
        """A model with the shape of `model` and the memory of this client."""
        own, shared = model.state_dict(keep_vars=True), dict[int, Tensor]()
        for name, tensor in self.model.state_dict().items():
            memory = self.kernels.get(name, tensor)[client]
            shared[id(own[name])] = nn.Parameter(memory) if isinstance(own[name], nn.Parameter) else memory
        return copy.deepcopy(model, shared)

    def _twin(self, module: nn.Module, size: tuple[int, int], whole: bool) -> nn.Module | None:
        match module:
            case nn.Conv2d():
                return StackedConv(module, self.clients, KernelWindow.of(module, *size, whole))
            case nn.BatchNorm2d():
                return StackedBatchNorm(module, self.clients, self.valid)
            case nn.GroupNorm():
                return StackedGroupNorm(module, self.clients)
            case MaxPool():
                return FastMaxPool()
            case nn.Linear():
                return StackedLinear(module, self.clients)
        return None

    def narrowed(self, clients: int) -> Stack:
        """A stack of only the first `clients` clients, in the same memory."""
        twin = copy.copy(self)
        twin.__dict__.pop("convolutions", None)
        copies = (copy for _, copy in self.short_weights)
        shared = {id(tensor): tensor[:clients] for tensor in (*self.model.buffers(), self.valid, *copies)}
        shared |= {id(tensor): nn.Parameter(tensor.data[:clients]) for tensor in self.model.parameters()}
        twin.clients, twin.valid, twin.model = clients, shared[id(self.valid)], copy.deepcopy(self.model, shared)
        twin.kernels = {name: tensor[:clients] for name, tensor in self.kernels.items()}
        twin.models = self.models[:clients]
        return twin

    def laid_out(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor of one or many clients in the layout of the stack, which differs for weights of convolutions."""
        layer = self.convolutions.get(name.removesuffix(".weight"))
        return tensor if layer is None or not name.endswith(".weight") else layer.laid_out(tensor)

    @torch.no_grad()
    def load(self) -> None:
        """Take over the weights of `models`."""
        for name, layer in self.convolutions.items():
            layer.weight.copy_(layer.laid_out(self.kernels[f"{name}.weight"]))
        self.refresh_short()

    @torch.no_grad()
    def unload(self) -> None:
        """Give the weights back to `models`."""
        for name, layer in self.convolutions.items():
            layer.put_back(self.kernels[f"{name}.weight"])

    def shorten(self) -> None:
        """Let convolutions compute with bfloat16 copies of their weights, which must follow each change of these.

        Gradients flow to the weights themselves, in their own precision.
        """
        for layer in self.convolutions.values():
            layer.short = torch.empty_like(layer.weight, dtype=torch.bfloat16, requires_grad=False)

    @property
    def short_weights(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The weights that have a bfloat16 copy, each with its copy."""
        return [(layer.weight, layer.short) for layer in self.convolutions.values() if layer.short is not None]

    @torch.no_grad()
    def refresh_short(self) -> None:
        """Copy the weights to their bfloat16 copies."""
        if pairs := self.short_weights:
            weights, copies = zip(*pairs, strict=True)
            copy_all(copies, weights)

    @cached_property
    def convolutions(self) -> dict[str, StackedConv]:
        """All convolutions by name."""
        return {name: layer for name, layer in self.model.named_modules() if isinstance(layer, StackedConv)}


def can_be_stacked(model: nn.Module) -> bool:
    """Whether all layers with weights have types that can be stacked; only convolutions may lack a bias."""

    def fits(module: nn.Module) -> bool:
        if isinstance(module, (BatchNorm, nn.GroupNorm, nn.Linear)):
            return module.bias is not None
        return isinstance(module, Conv) or not list(module.parameters(recurse=False))

    return all(fits(module) for module in model.modules())


def gathered_values(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """Number of values that the convolutions of a stacked model gather for one image."""
    total = 0
    for name, (height, width) in _map_sizes(model, shape).items():
        conv = model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        outputs = math.ceil(height / conv.stride[0]) * math.ceil(width / conv.stride[1])
        total += outputs * conv.in_channels * math.prod(conv.kernel_size)
    return total


@torch.no_grad()
def _map_sizes(model: nn.Module, shape: tuple[int, int, int]) -> dict[str, tuple[int, int]]:
    """Height and width of the images that each convolution sees, from one image on the CPU.

    With tensors on the device `meta`, torch would import its symbolic algebra, which takes longer.
    """
    sizes: dict[str, tuple[int, int]] = {}
    twin = copy.deepcopy(model).cpu()
    for name, module in twin.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda _, inputs, name=name: sizes.update({name: inputs[0].shape[2:]}))
    twin.eval()(next(twin.parameters()).new_zeros(1, *shape))
    return sizes
