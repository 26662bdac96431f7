"""The server trains the initial model on the plan's images; clients train on real ones."""

import pytest
import torch

from fedeas import InputError
from fedeas.config import load_config
from fedeas.federation.clients import LocalClients
from fedeas.federation.parts import Parts
from fedeas.federation.run import execute
from fedeas.federation.server_training import images_of, train_on_server
from fedeas.generators.pools import distinct_in_pool
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


def test_a_resumed_run_does_not_train_at_the_server_again(tmp_path):
    whole = run(tmp_path / "whole", "train.server_epochs=2")
    run(tmp_path / "parts", "train.server_epochs=2", pause=lambda record: True)
    parts = run(tmp_path / "parts", "train.server_epochs=2")
    assert [each["accuracy"] for each in parts.rounds()] == [each["accuracy"] for each in whole.rounds()]


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
        ("shared(of=gaussian, each=30)", lambda plan: distinct_in_pool(plan.n, 30).sum()),
    ],
)
def test_every_image_of_the_plan_is_trained_on_once(generator, made):
    policy = "pool(distinct=60)" if "shared" in generator else "fedeas(beta=1)"
    config = load_config(None, [*BASE, "train.server_epochs=1", f"generator={generator}", f"policy={policy}"])
    parts = Parts.of(config, torch.device("cpu"))
    clients = LocalClients.of(parts)
    images = images_of(parts, clients.allocation, clients.worker.generator)
    assert len(images) == made(clients.allocation)


def test_flower_is_refused():
    with pytest.raises(InputError, match="server_epochs"):
        load_config(None, [*BASE, "train.server_epochs=1", "engine.name=flower"])
