"""``fedeas generator train`` and ``check`` as a person meets them."""

import importlib
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedeas.cli import progress
from fedeas.core.provenance import Answer, DatasetParts, Seen, data_digest, seen_by
from fedeas.core.weight_files import generator_weights
from fedeas.data.sources import load_dataset
from fedeas.generators.diffusion import presets
from fedeas.generators.diffusion.presets import PRESETS, Network, Preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.weights import Weights
from fedeas.generators.quality.classifier import RECIPES
from fedeas.generators.quality.metrics import near_duplicates

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

FAST = Preset(
    Network((8, 16), layers=1, attention=(False, False), groups=4), batch=16, updates=6, lr=1e-2, ema=0.9, steps=2
)


@pytest.fixture
def run(run):
    return partial(run, "generator")


@pytest.fixture
def fast(monkeypatch):
    """A preset and a judge that are quick rather than good."""
    monkeypatch.setitem(presets.PRESETS, "fast", FAST)
    small = RECIPES["small-cnn"]
    monkeypatch.setitem(RECIPES, "small-cnn", replace(small, epochs=2))


def test_training_writes_a_generator_its_state_and_a_sheet(run, tmp_path, monkeypatch):
    command = importlib.import_module("fedeas.cli.generator")
    monkeypatch.setattr(progress, "SECONDS_PER_STEP", float("inf"))  # no progress, however busy the machine is,
    monkeypatch.setattr(command, "announce", lambda *said: None)  # and no announcement
    monkeypatch.setitem(presets.PRESETS, "digits", replace(PRESETS["digits"], batch=16, steps=2))
    arguments = ("train", "digits", "--preset", "digits", "--updates", 3, "--minutes", 999, "--out", tmp_path / "d")
    code, out, err = run(*arguments, "--device", "cpu")
    path = tmp_path / "d" / "generator.safetensors"
    assert (code, err) == (0, "")
    assert out == f"{path}: 48 images seen\n"
    assert sorted(file.name for file in (tmp_path / "d").iterdir() if file.name != ".lock") == [
        "generator.safetensors",
        "grid.png",
        "training.safetensors",
    ]
    assert (tmp_path / "d" / "grid.png").read_bytes().startswith(b"\x89PNG")
    weights = Weights.load(path)
    assert weights.network == PRESETS["digits"].network
    assert {"dataset": "digits", "protocol": "clean", "preset": "digits", "device": "CPU", "updates": 3}.items() <= (
        weights.provenance.items()
    )
    assert DiffusionGenerator(weights).sample([0], [0]).shape == (1, 1, 8, 8)
    assert run(*arguments, "--device", "cpu") == (0, out, "")  # nothing is left to do
    assert Weights.load(path).fingerprint == weights.fingerprint


def test_an_interrupted_training_is_resumed(run, fast, tmp_path):
    common = ("train", "digits", "--preset", "fast", "--device", "cpu", "--grid-minutes", 0)
    code, out, _ = run(*common, "--minutes", 1e-7, "--out", tmp_path / "broken")
    assert (code, "0 images seen" in out) == (0, True)
    assert "96 images seen" in run(*common, "--out", tmp_path / "broken")[1]
    run(*common, "--out", tmp_path / "whole")
    prints = {Weights.load(tmp_path / name / "generator.safetensors").fingerprint for name in ("broken", "whole")}
    assert len(prints) == 1
    assert not (tmp_path / "whole" / "grid.png").exists()
    code, _, err = run(*common, "--seed", 1, "--out", tmp_path / "whole")
    assert code == 2
    assert "a training of other data, preset, updates, seed or start; choose another folder" in err


def test_by_default_weights_have_their_own_folder_and_are_found_by_name(run, fast, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(tmp_path))
    run("train", "digits", "--preset", "fast", "--device", "cpu", "--grid-minutes", 0)
    assert generator_weights("digits-fast") == tmp_path / "digits-fast" / "generator.safetensors"


def test_training_data_stay_in_the_record(run, fast, tmp_path):
    common = ("train", "digits", "--preset", "fast", "--device", "cpu", "--grid-minutes", 0)
    run(*common, "--protocol", "merged", "--out", tmp_path / "first")
    first = tmp_path / "first" / "generator.safetensors"
    assert seen_by(first) == Seen("digits", ("train", "test"), Weights.load(first).provenance["data"])
    code, out, _ = run(*common, "--start", first, "--out", tmp_path / "second")
    assert (code, "192 images seen" in out) == (0, True)
    second = tmp_path / "second" / "generator.safetensors"
    weights = Weights.load(second)
    assert weights.provenance["protocol"] == "merged"  # what older versions read
    assert weights.seen == seen_by(second) == Seen("digits", ("train",), weights.provenance["data"], seen_by(first))
    assert weights.seen.answer(DatasetParts("digits"), ("test",)) is Answer.SEEN
    assert "digits (train), continued from digits (train and test)" in run("info", second)[1]


def test_strict_training_refuses_a_start_without_a_complete_record(run, fast, tmp_path):
    common = ("train", "digits", "--preset", "fast", "--device", "cpu", "--grid-minutes", 0, "--updates", 1)
    run(*common, "--out", tmp_path / "known")
    known, lost = tmp_path / "known" / "generator.safetensors", tmp_path / "lost.safetensors"
    replace(Weights.load(known), provenance={}).save(lost)
    assert run(*common, "--start", known, "--out", tmp_path / "a", "--strict")[0] == 0
    code, out, err = run(*common, "--start", lost, "--out", tmp_path / "b", "--strict")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "no record tells whether its ancestors have seen images of digits" in err
    assert not (tmp_path / "b").exists()
    assert run(*common, "--start", lost, "--out", tmp_path / "b")[0] == 0
    assert seen_by(tmp_path / "b" / "generator.safetensors").answer(DatasetParts("digits"), ("test",)) == "unknown"


def test_info_tells_what_weights_have_seen_of_a_dataset(run, tmp_path):
    digits = load_dataset("digits")
    parts = {"images": digits.images, "labels": digits.labels}
    tests = {"test_images": digits.test_images, "test_labels": digits.test_labels}
    np.savez(tmp_path / "copy.npz", **parts, **tests)
    chain = Seen("npz:gone.npz", ("train",), start=Seen("fashion-mnist", ("train",)))
    seen = Seen("digits", ("train",), data_digest(digits.images, digits.labels), start=chain)
    replace(Weights.load("digits"), provenance={"seen": seen.record}).save(tmp_path / "w.safetensors")
    asked = ("info", tmp_path / "w.safetensors", "--markdown", "--device", "cpu", "--data-root", tmp_path, "--for")
    for name in ("digits", f"npz:{tmp_path / 'copy.npz'}"):
        code, out, _ = run(*asked, name)
        facts = dict(line[2:-2].split(" | ") for line in out.splitlines()[2:])
        assert code == 0
        assert (facts[f"train part of {name}"], facts[f"test part of {name}"]) == ("seen", "unknown")
        found = near_duplicates(digits.test_images, digits.images)
        said = "{:,} of {:,} test images ({:,} if turned by 180 degrees)"
        assert facts["near-duplicates of digits (train)"] == said.format(found[0], len(digits.test_labels), found[1])
        assert all(
            facts[f"near-duplicates of {one} (train)"].startswith("not counted: ")
            for one in ("npz:gone.npz", "fashion-mnist")
        )


def test_on_a_terminal_a_bar_shows_the_loss(run, fast, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = run("train", "digits", "--preset", "fast", "--device", "cpu", "--grid-minutes", 0, "--out", tmp_path)
    assert code == 0
    assert "loss " in out
    assert "6/6" in out


def test_a_check_prints_a_table_and_writes_a_report(run, fast, tmp_path):
    arguments = ("digits", "--per-class", 5, "--members", 50, "--device", "cpu", "--out", tmp_path / "report")
    arguments += ("--classifier", tmp_path / "judges" / "digits.safetensors")
    code, out, err = run("check", "diffusion", *arguments)
    assert (code, err) == (0, "")
    for words in ("50 images", "agreement with the asked class", "classifier Frechet distance", "agreement: 7"):
        assert words in out
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (report["spec"], report["dataset"], report["images"]) == ("diffusion", "digits", 50)
    assert report["generator"] == DiffusionGenerator(Weights.load("digits")).fingerprint
    assert report["agreement"] == pytest.approx(np.mean(report["agreement_per_class"]))
    assert (tmp_path / "report" / "grid.png").read_bytes().startswith(b"\x89PNG")
    data = load_dataset("digits")
    seen = seen_by(tmp_path / "judges" / "digits.safetensors")
    assert seen == Seen("digits", ("train",), data_digest(data.images, data.labels))
    judge = (tmp_path / "judges" / "digits.safetensors").read_bytes()
    code, _, _ = run("check", "gaussian", *arguments)
    assert (tmp_path / "judges" / "digits.safetensors").read_bytes() == judge  # it is used, not trained again
    assert report["classifier"] == json.loads((tmp_path / "report" / "report.json").read_text())["classifier"]


def test_a_check_attacks_the_images_of_clients_and_shows_two_generators(run, fast, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("partition.clients = 3\npartition.alpha = 9.0\ndata.dataset = 'cifar10'\n")
    arguments = ("digits", "--per-class", 2, "--device", "cpu", "--out", tmp_path, "--beside", "gaussian")
    code, out, err = run("check", "diffusion", *arguments, "--members", 60, "--clients", config)
    assert (code, err) == (0, "")
    report = json.loads((tmp_path / "report.json").read_text())
    found, [beside] = report["membership"], report["beside"]
    assert (report["spec"], beside["spec"], beside["membership"]) == ("diffusion", "gaussian(components=32)", None)
    assert found["clients"].keys() == {"0", "1", "2"}
    assert found["overall"]["members"] == sum(own["members"] for own in found["clients"].values()) == 150
    assert found["overall"]["auc_interval"][0] > 0.5  # the shipped weights have seen 1,437 images thousands of times
    assert (found["overall"]["found"], found["small_clients"]) == (None, 0)
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    assert len(rows["images per second"].split("│")) == len(rows["membership attack: AUC"].split("│")) == 6
    assert "too few images: 60 of 1,000" in rows["members found at 0.1% false alarms"]
    assert {"auc, median client", "auc, worst client", "agreement: 7"} <= rows.keys()


def test_a_reference_that_has_seen_the_images_is_refused(run, fast, tmp_path):
    code, _, err = run("check", "diffusion", "digits", "--per-class", 2, "--reference", "digits", "--device", "cpu")
    assert (code, err.count("\n")) == (2, 1)
    assert "a reference must not have seen digits" in err


def test_a_check_without_a_folder_writes_nothing(run, fast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("check", "gaussian", "digits", "--per-class", 2, "--device", "cpu")
    assert (code, "20 images" in out) == (0, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train nothing", "nothing"),
        (
            "train digits --preset huge",
            "no preset is called 'huge'; choose one of digits, quick, small, compact, paper",
        ),
        ("train digits --preset digits --protocol dirty", "protocol must be clean or merged, not 'dirty'"),
        ("train digits --preset digits --device abacus", "device 'abacus' cannot be used"),
        ("train digits --preset digits --start none.safetensors", "none.safetensors: no such file"),
        ("check diffusion nothing", "nothing"),
        ("check gan digits", "unknown generator 'gan'; known are gaussian, diffusion"),
        ("check diffusion(steps=fast) digits", "steps must be a whole number, 0 or more, not 'fast'"),
        ("check diffusion(weights=none) digits", "there are no weights called 'none'"),
        ("check diffusion digits --device abacus", "device 'abacus' cannot be used"),
        ("check gaussian(components=99) digits", "components must be between 1 and the 64 pixels, not 99"),
    ],
)
def test_unusable_arguments_give_one_line_and_exit_code_2(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments.split())
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", ["train digits --minutes -1", "train digits --updates -1", "check gaussian digits --per-class 0"]
)
def test_numbers_out_of_range_are_refused(run, arguments):
    code, _, err = run(*arguments.split())
    assert code == 2
    assert "Invalid value" in err
