"""What a run is, down to the content of its parts: data, split, initial weights, and what makes its images."""

from __future__ import annotations

import hashlib
import json

from fedeas.config import ContentConfig, RunConfig
from fedeas.errors import InputError
from fedeas.generators.registry import parse_generator
from fedeas.models import suited_to
from fedeas.split import FederatedData
from fedeas.starts import check_clean_start
from fedeas.starts import content as content_of_start

PARTS = {
    "data": "images and labels",
    "partition": "who holds which sample",
    "weights": "the initial weights",
    "generator": "the generator's weights or code",
}


def pinned(config: RunConfig, data: FederatedData) -> RunConfig:
    """The config with nothing left open: the model named, and the content of every part as a digest.

    Its fingerprint is the run's identity. A digest that the config gives already must be right.
    """
    found = ContentConfig(
        data=data.dataset.digest,
        partition=data.partition.digest,
        weights=content_of_start(config.model.weights).get("weights", ""),
        generator=_generator_digest(config),
    )
    for part, words in PARTS.items():
        wanted = getattr(config.content, part)
        if wanted and wanted != getattr(found, part):
            raise InputError(
                f"content.{part}: {words} differ from what the config names; bring them back or drop the line"
            )
    name = suited_to(data.dataset.shape) if config.model.name == "auto" else config.model.name
    model = config.model.model_copy(update={"name": name})
    model = model.model_copy(update={"norm": model.usual_norm})
    return config.model_copy(update={"model": model, "content": found})


def unknown_content(config: RunConfig) -> tuple[str, ...]:
    """What determines the result, or was seen in training, but cannot be known from here; one sentence each.

    In the clean protocol, initial weights that have seen test images of the dataset are refused.
    """
    dataset, protocol = config.data.dataset, config.data.protocol
    start = check_clean_start(config.model.weights, dataset) if protocol == "clean" else ()
    generator = parse_generator(config.generator).unknown(dataset, protocol) if config.generates else ()
    return (*start, *generator)


def _generator_digest(config: RunConfig) -> str:
    """Of what the generator's spec leads to; nothing where the spec says it all, or nothing is generated."""
    content = parse_generator(config.generator).content(config.data.dataset) if config.generates else {}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest() if content else ""
