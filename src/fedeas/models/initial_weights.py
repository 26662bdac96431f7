"""Initial weights of a run's model: their digest, and which images they were trained on."""

from __future__ import annotations

import io

from fedeas.core.errors import InputError
from fedeas.core.provenance import NOT_KNOWN, TEST, Answer, DatasetParts, Seen, check_clean, seen_by, which_images
from fedeas.core.weight_files import TORCHVISION, digest_of_tensors, model_weights, weights_digest


def content(place: str) -> dict[str, str]:
    """The digest of initial weights, given by name, path or ``"torchvision"``; empty if there are none.

    >>> content("")
    {}
    """
    if place == TORCHVISION:
        from safetensors.torch import save

        from fedeas.models.build import torchvision_weights

        try:
            return {"weights": digest_of_tensors(io.BytesIO(save(torchvision_weights())))}
        except InputError:  # no run can start either
            return {}
    path = model_weights(place)
    return {} if path is None else {"weights": weights_digest(path)}


def check_clean_start(place: str, dataset: str) -> tuple[str, ...]:
    """Refuse initial weights that have seen test images of the dataset; return sentences on what is not known.

    >>> check_clean_start("torchvision", "cifar10")
    ('torchvision: which images it has seen',)
    """
    if place == TORCHVISION:
        return (which_images(place),)
    path = model_weights(place)
    if path is None:
        return ()
    seen, data = seen_by(path), DatasetParts(dataset)
    check_clean(path, seen, data, "choose other model.weights, or none")
    return (which_images(path),) if seen.answer(data, TEST) is Answer.UNKNOWN else ()


def start_seen(place: str) -> Seen | None:
    """Which images the initial weights were trained on; None if there are no weights."""
    path = model_weights(place)
    if path is None:
        return NOT_KNOWN if place == TORCHVISION else None
    return seen_by(path)
