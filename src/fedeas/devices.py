"""Where tensors live: a device by name, or an error that says which names there are."""

from __future__ import annotations

import torch

from fedeas.errors import InputError


def chosen_device(name: str) -> torch.device:
    """``cpu``, ``cuda``, ``cuda:1``; ``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used ({reason}); use cpu, cuda or auto") from None
    return device
