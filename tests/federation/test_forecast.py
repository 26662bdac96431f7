"""The estimate of a run's time: what it counts, and that it leaves the run alone."""

import numpy as np
import pytest
import torch

from fedeas.cli.generator import _say_how_long
from fedeas.cli.progress import say_how_long
from fedeas.config import load_config
from fedeas.federation.parts import Parts
from fedeas.federation.run import Forecast, for_this_machine, forecast, steps_of_a_round
from fedeas.generators.diffusion.presets import PRESETS, preset
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import RunStore

HOUR = 3600.0


def config(*overrides):
    return load_config(None, ["partition.clients=4", "rounds.participation=0.5", *overrides])


@pytest.mark.parametrize(
    ("override", "steps"), [("train.epochs=3", 2 * 3 * (1 + 2 + 1 + 4) / 4), ("train.steps=7", 14)]
)
def test_a_round_has_the_steps_of_its_participants(override, steps):
    assert steps_of_a_round(config(override, "train.batch_size=10"), np.array([3, 20, 10, 31])) == steps


def test_a_forecast_counts_rounds_and_images_and_leaves_the_run_alone():
    parts = Parts.of(config("policy=fedeas(beta=3)"), torch.device("cpu"))
    allocation = parse_policy("fedeas(beta=3)").allocate(parts.data.counts)
    before = {name: tensor.clone() for name, tensor in parts.model.state_dict().items()}
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    found = forecast(parts, allocation, rounds=50)
    assert (found.rounds, found.images) == (50, allocation.total)
    assert found.seconds > 0
    assert forecast(parts, allocation, rounds=0).seconds == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in parts.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_only_what_takes_over_a_minute_is_announced(capsys):
    say_how_long(Forecast(59.0, 5, 0))
    assert capsys.readouterr().err == ""
    say_how_long(Forecast(150.0, 5, 1234))
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 min 30 s" in line and "1,234" in line


def test_an_upper_bound_is_announced_as_one(capsys):
    say_how_long(Forecast(150.0, 5, 0, is_bound=True))
    assert "at most" in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "limit", "lines"), [(30, 0, 0), (600, 0, 1), (9 * HOUR, 0, 2), (9 * HOUR, 600, 2)])
def test_a_training_of_hours_on_a_cpu_offers_the_generator_that_needs_none(capsys, seconds, limit, lines):
    _say_how_long(seconds, 1000, limit, "paper")
    said = capsys.readouterr().err
    assert len(said.splitlines()) == lines
    assert ("gaussian" in said) == (seconds > HOUR)


@pytest.mark.parametrize("preset", PRESETS)
def test_nobody_is_told_to_use_a_preset_that_is_no_quicker(capsys, preset):
    _say_how_long(9 * HOUR, 1000, 0, preset)
    assert ("--preset quick" in capsys.readouterr().err) == (PRESETS[preset].updates > PRESETS["digits"].updates)


def test_the_forecast_of_a_training_leaves_it_alone():
    images = np.zeros((8, 1, 8, 8), np.uint8)
    trainer = Trainer(images, np.arange(8) % 2, ["a", "b"], preset("digits"), updates=10)
    before = trainer.random.get_state()
    weights = [parameter.detach().clone() for parameter in trainer.parameters]
    assert trainer.forecast() > 0
    assert torch.equal(trainer.random.get_state(), before)
    assert all(map(torch.equal, weights, trainer.parameters))
    trainer.update_number = 10
    assert trainer.forecast() == 0


# ---- the network of a run that leaves it open

CPU = ("engine.device=cpu", "data.dataset=cifar10")


def test_without_a_gpu_an_open_model_is_the_small_one(tmp_path):
    store = RunStore(tmp_path)
    assert for_this_machine(config(*CPU), store).model.name == "small-cnn"
    for named in ("model.name=resnet18", "model.weights=torchvision", "model.stem=imagenet"):
        given = config(*CPU, named)
        assert for_this_machine(given, store) == given


def test_a_run_with_the_larger_network_is_resumed_as_it_is(tmp_path):
    store = RunStore(tmp_path)
    large = config(*CPU, "model.name=resnet18", "model.norm=batch")
    store.open(large.model_copy(update={"content": large.content.model_copy(update={"data": "a" * 64})}))
    assert for_this_machine(config(*CPU), store).model.name == "auto"
    assert for_this_machine(config(*CPU, "seed=3"), store).model.name == "small-cnn"
