"""Train the initial model on the plan's images at the server, which then do not go to the clients."""

from __future__ import annotations

import time

import numpy as np

from fedeas.algorithms import FedAvg
from fedeas.algorithms.base import ClientJob, model_arrays
from fedeas.core.arrays import IntArray
from fedeas.core.log import log
from fedeas.data.client import ClientData
from fedeas.federation.parts import Parts
from fedeas.federation.worker import random_numbers_of
from fedeas.generators.base import Generator, GeneratorWrapper, Images, plan_addresses
from fedeas.generators.pools import SharedPool, numbers_in_pool
from fedeas.planning.counts import Allocation
from fedeas.runs.store import Record


def train_on_server(parts: Parts, plan: Allocation, generator: Generator) -> Record:
    """Train the run's model, in place, for ``train.server_epochs`` passes over all different images of a plan.

    Returns how many images these are, and the steps and seconds that the training took.
    """
    config, started = parts.config, time.perf_counter()
    data = images_of(parts, plan, generator)
    train = config.train.model_copy(update={"epochs": config.train.server_epochs, "steps": 0})
    broadcast = model_arrays(parts.model)
    place = config.partition.clients, 0  # a number that no client has, and the round before the first
    job = ClientJob(
        *place, config.seed, config.rounds.total, parts.model, data, broadcast, {}, train, config.engine.precision
    )
    with random_numbers_of(job):
        reply, _ = FedAvg().client_update(job)
    metrics = reply.metrics  # raises if the loss is not finite
    images, steps = len(data.labels), int(float(metrics["steps"]))
    log.info("the server trained for %d steps on %d images", steps, images)
    return {"images": images, "steps": steps, "seconds": round(time.perf_counter() - started, 6)}


def images_of(parts: Parts, plan: Allocation, generator: Generator) -> ClientData:
    """Every image of the plan once, also if clients share it; only held-out images that they share are repeated."""
    addresses = [plan_addresses(client, row) for client, row in enumerate(plan.n)]
    labels, index = (np.concatenate(column) for column in zip(*addresses, strict=True))
    if isinstance(generator, SharedPool):
        labels, index = np.unique(np.stack([labels, numbers_in_pool(index, generator.each)]), axis=1)
    images = generator.sample(labels, index)
    if _wraps_a_pool(generator):  # its addresses do not tell which images are the same
        first = _first_of_each(images, labels)
        images, labels = images[first], labels[first]
    return ClientData.of(images, labels, parts.normalise)


def _wraps_a_pool(generator: Generator) -> bool:
    """Whether a pool is inside of this generator."""
    while isinstance(generator, GeneratorWrapper):
        generator = generator.generator
        if isinstance(generator, SharedPool):
            return True
    return False


def _first_of_each(images: Images, labels: IntArray) -> IntArray:
    """The places of all different images; of equal images with one label, the first place."""
    places: dict[tuple[int, bytes], int] = {}
    for place, (label, image) in enumerate(zip(labels.tolist(), images, strict=True)):
        places.setdefault((label, image.tobytes()), place)
    return np.array(list(places.values()), dtype=np.int64)
