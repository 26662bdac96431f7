"""What a run's generator has seen of the run: recorded in the summary, refused in the clean protocol."""

from dataclasses import replace

import numpy as np
import pytest

import fedeas
from fedeas import InputError
from fedeas.cli import main
from fedeas.config import load_config
from fedeas.core.provenance import NOT_KNOWN, Answer, Seen, data_digest
from fedeas.data.sources import load_dataset
from fedeas.federation.parts import seen_by_generator
from fedeas.generators.diffusion.weights import Weights

DIGITS = load_dataset("digits")
TRAIN, TEST = data_digest(DIGITS.images, DIGITS.labels), data_digest(DIGITS.test_images, DIGITS.test_labels)
SMALL = ["rounds.total=1", "train.steps=1", "partition.clients=2", "partition.alpha=10", "engine.threads=1"]
COPY = "npz:copy.npz"


@pytest.fixture
def weights(tmp_path):
    """Write the packaged weights with another record; give back the generator's spec."""

    def write(seen):
        path = tmp_path / "weights" / "w.safetensors"
        path.parent.mkdir(exist_ok=True)
        about = {"protocol": "clean"} if seen is None else {"seen": seen.record}
        replace(Weights.load("digits"), provenance=about).save(path)
        return f'diffusion(weights="{path}", steps=1)'

    return write


def config(generator, *more, policy="uniform(budget=20)"):
    return load_config(None, [*SMALL, f"policy={policy}", f"generator={generator}", *more])


def seen_in_run(asked, folder):
    """The note in the summary, which is also that of the run, and nothing if there is none."""
    run = fedeas.run(asked, runs=folder)
    found = run.summary().get("seen")
    assert run.seen == Answer(found or "clean").note
    assert found == (None if (answer := seen_by_generator(run.config, DIGITS)) == "clean" else answer)
    return found


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (Seen("digits", ("train",)), None),
        (Seen("digits", ("train",), start=Seen("cifar10", ("train", "test"))), None),
        (Seen(COPY, ("train",), TRAIN), None),
        (Seen(COPY, ("train",), "of other data"), "unknown"),
        (Seen("digits", ("train",), start=NOT_KNOWN), "unknown"),
        (None, "unknown"),
    ],
)
def test_the_summary_says_what_the_weights_have_seen(weights, tmp_path, seen, found):
    assert seen_in_run(config(weights(seen)), tmp_path / "runs") == found


@pytest.mark.parametrize("wrapper", ["{}", "shared(of={})", "agreeing(of=shared(of={}))"])
def test_a_clean_run_refuses_a_renamed_copy_of_its_test_part(weights, tmp_path, wrapper):
    generator = wrapper.format(weights(Seen("cifar10", ("train",), start=Seen(COPY, ("train",), TEST))))
    with pytest.raises(InputError, match=r"continued from npz:copy\.npz .*, which a clean run on digits tests on"):
        fedeas.run(config(generator), runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("protocol", "generator", "answer"),
    [
        ("clean", "gaussian", "clean"),
        ("paper", "gaussian", "seen"),
        ("paper", "shared(of=gaussian)", "seen"),
        ("paper", "diffusion", "seen"),
        ("paper", "diffusion(weights=fashion-mnist)", "clean"),
        ("paper", "sd-turbo", "unknown"),
        ("clean", "sd-turbo", "unknown"),
        ("clean", "python:own.module:images", "unknown"),
        ("clean", "held-out", "clean"),  # images of the training part
    ],
)
def test_the_protocol_decides_which_images_are_tested_on(protocol, generator, answer):
    scheme = {"clean": "auto", "paper": "paper"}[protocol]
    asked = config(generator, f"data.protocol={protocol}", f"partition.scheme={scheme}")
    assert seen_by_generator(asked, DIGITS) == answer
    nothing = asked.model_copy(update={"policy": "no-generation"})
    assert seen_by_generator(nothing, DIGITS) == "clean"


def test_a_summary_under_the_papers_protocol_says_that_its_test_images_were_seen(tmp_path):
    asked = config("gaussian", "data.protocol=paper", "partition.scheme=paper")
    assert seen_in_run(asked, tmp_path) == "seen"


def test_strict_refuses_unknown_ancestors_before_anything_is_written(weights, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    generator = weights(Seen("digits", ("train",), start=NOT_KNOWN))
    message = "no record tells whether its ancestors have seen images of digits"
    with pytest.raises(InputError, match=message):
        fedeas.run(config(generator), strict=True)
    with pytest.raises(SystemExit) as stopped:
        main(["run", *SMALL, "policy=uniform(budget=20)", f"generator={generator}", "--strict"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert fedeas.run(config("gaussian"), strict=True).finished


def test_the_answer_does_not_depend_on_the_order_of_a_files_images(weights):
    """It is unknown, not clean, if a copy cannot be recognised."""
    order = np.arange(len(DIGITS.labels))[::-1]
    shuffled = data_digest(DIGITS.images[order], DIGITS.labels[order])
    assert seen_by_generator(config(weights(Seen(COPY, ("train",), shuffled))), DIGITS) == "unknown"
