"""Initial weights of a run's model: what determines them."""

from __future__ import annotations

import io

from fedeas.errors import InputError
from fedeas.weights import TORCHVISION, digest_of_tensors, model_weights, weights_digest


def content(place: str) -> dict[str, str]:
    """The digest of initial weights, by name, path or ``"torchvision"``; nothing where there are none.

    >>> content("")
    {}
    """
    if place == TORCHVISION:
        return _torchvision_content()
    path = model_weights(place)
    return {} if path is None else {"weights": weights_digest(path)}


def _torchvision_content() -> dict[str, str]:
    """Nothing where they cannot be had: a run could not begin with them either."""
    from safetensors.torch import save

    from fedeas.models import torchvision_weights

    try:
        return {"weights": digest_of_tensors(io.BytesIO(save(torchvision_weights())))}
    except InputError:
        return {}
