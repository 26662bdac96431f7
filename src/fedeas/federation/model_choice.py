"""Choose the network of a run that leaves it open, by what this machine can train."""

from __future__ import annotations

from contextlib import suppress

from fedeas.config.run import RunConfig
from fedeas.config.sections import ModelConfig
from fedeas.core.devices import chosen_device
from fedeas.core.errors import InputError
from fedeas.runs.store import RunStore, read_run


def for_this_machine(config: RunConfig, store: RunStore) -> RunConfig:
    """The config with the small CNN for ``model.name=auto`` without a GPU, where a ResNet-18 takes hours.

    A run with the ResNet-18 that is already in the store is resumed as it is, and so are settings that only a ResNet
    has.
    """
    model = config.model
    open_choice = model.name == "auto" and (model.stem, model.weights) == (ModelConfig().stem, "")
    if not open_choice or chosen_device(config.engine.device, "engine.device").type != "cpu":
        return config
    small, large = (config.model_copy(update={"model": model.named(name)}) for name in ("small-cnn", "resnet18"))
    return config if _is_there(large, store) else small


def _is_there(config: RunConfig, store: RunStore) -> bool:
    """Whether the store has this run, in whatever state; a damaged directory does not count."""
    for path in store.root.glob(f"{config.label}-*/config.json"):
        with suppress(InputError):
            if read_run(path.parent).config.unpinned.fingerprint == config.unpinned.fingerprint:
                return True
    return False
