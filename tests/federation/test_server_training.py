"""The server trains the initial model on the plan's images; clients train on real ones."""

import numpy as np
import pytest
import torch

from fedeas import InputError
from fedeas.config import load_config
from fedeas.federation.clients import LocalClients
from fedeas.federation.parts import Parts
from fedeas.federation.run import execute
from fedeas.federation.server_training import images_of, train_on_server
from fedeas.generators.base import plan_addresses
from fedeas.generators.filtered import Filtered
from fedeas.generators.pools import SharedPool, distinct_in_pool
from fedeas.planning.counts import Allocation
from fedeas.runs.store import RunStore

BASE = ["train.lr=0.05", "train.epochs=1", "rounds.total=2", "partition.clients=4", "engine.threads=1",
        "engine.processes=1", "policy=fedeas(beta=4)"]  # fmt: skip


def run(folder, *overrides, pause=None):
    return execute(load_config(None, [*BASE, *overrides]), RunStore(folder), pause=pause)


def test_clients_get_no_images_and_the_start_is_better(tmp_path):
    usual, server = run(tmp_path, "policy=no-generation"), run(tmp_path, "train.server_epochs=10")
    assert server.summary()["samples"] == usual.summary()["samples"]
    assert server.summary()["generated"] == 0 < server.summary()["total"]
    assert server.rounds()[0]["accuracy"] > usual.rounds()[0]["accuracy"] + 0.1


def test_the_summary_says_what_the_server_trained_on(tmp_path):
    summary = run(tmp_path, "train.server_epochs=3", "train.batch_size=32").summary()
    whole, rest = divmod(summary["total"], 32)
    assert summary["server"]["images"] == summary["total"] > 32
    assert summary["server"]["steps"] == 3 * (whole + (rest > 0))
    assert "server" not in run(tmp_path, "policy=no-generation").summary()


def test_a_resumed_run_does_not_train_at_the_server_again(tmp_path):
    whole = run(tmp_path / "whole", "train.server_epochs=2")
    run(tmp_path / "parts", "train.server_epochs=2", pause=lambda record: True)
    parts = run(tmp_path / "parts", "train.server_epochs=2")
    assert [each["accuracy"] for each in parts.rounds()] == [each["accuracy"] for each in whole.rounds()]
    for name in ("images", "steps"):
        assert parts.summary()["server"][name] == whole.summary()["server"][name]


def test_dropout_at_the_server_is_repeatable():
    model = "model.name=python:federation.engines.dropping:Dropping"
    config = load_config(None, [*BASE, "train.server_epochs=1", "policy=missing-only(budget=20)", model])

    def trained(before):
        parts = Parts.of(config, torch.device("cpu"))
        clients = LocalClients.of(parts)
        torch.manual_seed(before)
        train_on_server(parts, clients.allocation, clients.worker.generator)
        return parts.model.head.weight

    with torch.random.fork_rng(devices=[]):
        assert torch.equal(trained(1), trained(2))


@pytest.mark.parametrize(
    ("generator", "made"),
    [
        ("gaussian", lambda plan: plan.total),
        ("shared(of=gaussian)", lambda plan: plan.distinct),
        ("shared(of=gaussian, each=60)", lambda plan: distinct_in_pool(plan.n, 60).sum()),
    ],
)
def test_every_image_of_the_plan_is_trained_on_once(generator, made):
    policy = "pool(distinct=600)" if "shared" in generator else "fedeas(beta=1)"
    config = load_config(None, [*BASE, "train.server_epochs=1", f"generator={generator}", f"policy={policy}"])
    parts = Parts.of(config, torch.device("cpu"))
    clients = LocalClients.of(parts)
    images = images_of(parts, clients.allocation, clients.worker.generator)
    assert len(images) == made(clients.allocation)


class Numbered:
    """Images that show their class and their number."""

    num_classes, shape, batch_size, fingerprint = 10, (1, 8, 8), 16, "numbered"

    def sample(self, labels, index):
        images = np.zeros((len(labels), *self.shape), dtype=np.uint8)
        images[:, 0, 0, 0], images[:, 0, 0, 1] = labels, index % 251
        return images


class AgreesWithEveryThird:
    num_classes, shape, fingerprint = Numbered.num_classes, Numbered.shape, "third"

    def predict(self, images):
        return np.where(images[:, 0, 0, 1] % 3 == 0, images[:, 0, 0, 0], -1)


@pytest.mark.parametrize("each", [0, 90])
def test_every_image_of_a_pool_inside_of_a_filter_is_trained_on_once(each):
    parts = Parts.of(load_config(None, [*BASE, "train.server_epochs=1"]), torch.device("cpu"))
    plan = Allocation(np.tile(np.arange(10), (4, 1)), "four clients")
    generator = Filtered(SharedPool(Numbered(), each), AgreesWithEveryThird())
    addresses = [plan_addresses(client, row) for client, row in enumerate(plan.n)]
    all_images = np.concatenate([generator.sample(*address) for address in addresses])
    trained_on = images_of(parts, plan, generator).images.numpy()
    assert len(all_images) > len(trained_on)
    assert sorted(image.tobytes() for image in trained_on) == sorted({image.tobytes() for image in all_images})


def test_flower_is_refused():
    with pytest.raises(InputError, match="server_epochs"):
        load_config(None, [*BASE, "train.server_epochs=1", "engine.name=flower"])
