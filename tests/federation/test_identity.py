"""The identity of a run: spelling does not matter, content does; a config that cannot run leaves nothing behind."""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from fedeas import InputError
from fedeas.cli import main
from fedeas.config import RunConfig, load_config
from fedeas.federation.run import execute, identified
from fedeas.models.build import build_model
from fedeas.runs.store import RunStore, read_run

BASE = ["train.lr=0.05", "train.epochs=1", "rounds.total=2", "partition.clients=4", "engine.threads=1"]


def config(*overrides: str) -> RunConfig:
    return load_config(None, [*BASE, *overrides])


def fingerprints(*spellings: str) -> set[str]:
    return {load_config(None, [each]).fingerprint for each in spellings}


# ---- spelling


@pytest.mark.parametrize(
    "spellings",
    [
        ["policy=fedeas", "policy=FedEAS", "policy=fedeas(beta=12)", "policy=fedeas( beta = 12.0 , gamma=0.5)"],
        ["policy=uniform(budget=fedeas)", "policy=Uniform(budget=FedEAS(beta=1.2e1))"],
        ["policy=missing-only(budget=100)", "policy=missing_only(budget=100)"],
        ["algorithm=fedprox", "algorithm=FedProx(mu=0.01)", "algorithm=fedprox(mu=1e-2)"],
        ["algorithm=scaffold", "algorithm=SCAFFOLD(option=II, server_lr=1)"],
        ["partition.scheme=iid", 'partition={scheme="iid", alpha=0.3, cap=true, min_size=5, per_client=9}'],
        ["train.steps=5", "train={steps=5, epochs=3}"],
        ["rounds.participation=0.5", "rounds.participation=0.501"],
        ["generator=gaussian", "generator=diffusion", "generator=gaussian(components=7)"],
    ],
)
def test_spellings_of_one_run_have_one_fingerprint(spellings):
    assert len(fingerprints(*spellings)) == 1


def test_the_generator_counts_only_if_the_policy_needs_images():
    generating = [f"generator={name}" for name in ("gaussian", "gaussian(components=7)", "diffusion")]
    assert len({load_config(None, ["policy=fedeas", each]).fingerprint for each in generating}) == 3
    same = ["generator=gaussian", "generator=Gaussian(components=32, shrinkage=0.10)"]
    assert len({load_config(None, ["policy=fedeas", each]).fingerprint for each in same}) == 1


@given(st.sampled_from(["policy", "algorithm", "generator"]), st.data())
def test_a_copy_with_another_spelling_is_the_same_run(kind, data):
    text = {"policy": "fedeas(beta=3)", "algorithm": "moon(mu=2)", "generator": "gaussian(components=8)"}[kind]
    spelled = "".join(data.draw(st.sampled_from([letter, letter.upper()])) for letter in text.partition("(")[0])
    base = load_config(None, ["policy=fedeas(beta=3)", f"{kind}={text}"])
    assert base.model_copy(update={kind: spelled + text[text.index("(") :]}).fingerprint == base.fingerprint


def test_auto_is_replaced_by_the_models_name_when_a_run_starts():
    auto, named = (identified(config(each)) for each in ("model.name=auto", "model.name=small-cnn"))
    assert auto == named
    assert identified(config("model.norm=none")).fingerprint == auto.fingerprint
    assert identified(config("model.norm=group")).fingerprint != auto.fingerprint


# ---- a config that cannot run leaves nothing behind


@pytest.mark.parametrize(
    "bad",
    [
        ["algorithm=fedavgg"],
        ["algorithm=fedprox(mu=-1)"],
        ["policy=magic"],
        ["generator=gausian", "policy=fedeas"],
        ["generator=diffusion(weights=nowhere)", "policy=fedeas"],
        ["generator=python:no.such:thing", "policy=fedeas"],
        ["data.dataset=didgits"],
        ["data.dataset=folder:/no/such/folder"],
        ["model.weights=no-such-weights"],
        ["partition.clients=100000"],
        ["policy=uniform(budget=-5)"],
        ["engine.device=quantum"],
        ["engine.precision=bf16", "engine.device=cpu"],
        ["train.batch_size=1", "model.norm=batch"],
        ["algorithm=scaffold", "train.momentum=0.9"],
    ],
)
def test_a_config_that_cannot_run_leaves_nothing_behind(bad, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["run", *BASE, *bad])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# ---- content


def folder_of_images(root: Path, count: int = 12) -> Path:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            (root / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / label / f"{number}.png")
    return root


def test_changed_images_make_another_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    images, store = folder_of_images(tmp_path / "images"), RunStore(tmp_path / "runs")
    asked = config(f"data.dataset=folder:{images}", "partition.clients=2", "partition.alpha=10")
    before = execute(asked, store)
    assert execute(asked, store).path == before.path
    (images / "train" / "dog" / "3.png").unlink()
    after = execute(asked, store)
    assert after.path != before.path
    assert after.finished and before.finished


def test_the_same_images_elsewhere_are_the_same_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    here = folder_of_images(tmp_path / "here")
    there = shutil.copytree(here, tmp_path / "there")
    asked = [config(f"data.dataset=folder:{place}", "partition.clients=2") for place in (here, there)]
    assert len({identified(each).fingerprint for each in asked}) == 1


CODE = "import numpy as np\ndef images(labels, index):\n    return np.full((len(labels), 1, 8, 8), {}, np.uint8)\n"
OWN = ["policy=fedeas(beta=5)", "generator=python:identity_generator:images"]


@pytest.mark.slow
def test_edited_code_of_a_generator_makes_another_run(tmp_path):
    for pixel in (10, 200):
        (tmp_path / "identity_generator.py").write_text(CODE.format(pixel))
        command = [sys.executable, "-m", "fedeas", "run", *BASE, *OWN]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    runs = RunStore(tmp_path / "runs").all()
    assert len(runs) == 2
    assert runs[0].rounds()[0]["train_loss"] != runs[1].rounds()[0]["train_loss"]
    assert all(any("identity_generator" in words for words in run.environment()["unknown"]) for run in runs)


def test_code_that_was_edited_under_a_running_process_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "identity_generator.py").write_text(CODE.format(10))
    execute(config(*OWN), RunStore("runs"))
    (tmp_path / "identity_generator.py").write_text(CODE.format(200))
    with pytest.raises(InputError, match="restart"):
        execute(config(*OWN), RunStore("runs"))


def test_weights_count_by_content_and_not_by_path(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        save_file(build_model("small-cnn", (1, 8, 8), 10, seed=seed).state_dict(), tmp_path / f"{name}.safetensors")
    a, b, c = (identified(config(f"model.weights={tmp_path / name}.safetensors")).fingerprint for name in "abc")
    assert a == b != c
    before = config(f"model.weights={tmp_path / 'a.safetensors'}")
    shutil.copyfile(tmp_path / "c.safetensors", tmp_path / "a.safetensors")
    assert identified(before).fingerprint == c


def test_named_and_default_weights_of_a_generator_are_one_run():
    spellings = ("diffusion", "diffusion(weights=digits)", 'Diffusion(weights="")')
    found = {identified(config("policy=fedeas", f"generator={each}")).fingerprint for each in spellings}
    assert len(found) == 1
    assert identified(config("policy=fedeas", "generator=diffusion(steps=9)")).fingerprint not in found


def test_classifiers_of_nested_filters_all_count(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        model = build_model("small-cnn", (1, 8, 8), 10, seed=seed)
        about = json.dumps({"architecture": "small-cnn"})
        save_file(model.state_dict(), tmp_path / f"{name}.safetensors", {"about": about})
    a, b = (f'"{tmp_path / name}.safetensors"' for name in "ab")
    specs = [
        f"agreeing(of=shared(of=agreeing(of=gaussian, classifier={a})), classifier={b})",
        f"agreeing(of=shared(of=agreeing(of=gaussian, classifier={b})), classifier={b})",
        f"agreeing(of=shared(of=agreeing(of=gaussian, classifier={b})))",
        f"agreeing(of=shared(of=agreeing(of=gaussian)), classifier={b})",
    ]
    found = {identified(config("policy=fedeas", f"generator={spec}")).fingerprint for spec in specs}
    assert len(found) == len(specs)


def test_a_digest_in_the_config_must_match_the_content(tmp_path):
    known = identified(config())
    again = load_config(None, [*BASE, f"content.data={known.content.data}"])
    assert identified(again).fingerprint == known.fingerprint
    with pytest.raises(InputError, match=r"content\.partition"):
        identified(load_config(None, [*BASE, "partition.seed=7", f"content.partition={known.content.partition}"]))


def test_the_stored_config_is_the_whole_identity(tmp_path):
    run = execute(config("policy=fedeas(beta=5)"), RunStore(tmp_path))
    stored = read_run(run.path).config
    assert stored == run.config
    assert run.path.name == stored.directory
    assert all((stored.content.data, stored.content.partition))
    assert run.summary()["fingerprint"] == stored.fingerprint


def test_seeds_of_one_method_share_a_federation_unless_it_is_redrawn():
    fixed = [identified(config(f"seed={seed}")) for seed in range(3)]
    redrawn = [identified(config(f"seed={seed}", "partition.redraw=true")) for seed in range(3)]
    assert len({each.content.partition for each in fixed}) == 1
    assert len({each.content.partition for each in redrawn}) == 3
    assert redrawn[0].content.partition == fixed[0].content.partition
    for runs in (fixed, redrawn):
        assert len({each.method for each in runs}) == 1
        assert len({each.fingerprint for each in runs}) == 3


# ---- golden: a change of meaning is noticed

GOLDEN = json.loads((Path(__file__).parents[1] / "golden_runs.json").read_text())


NAMES = [pytest.param(name, marks=pytest.mark.slow if name == "resnet" else ()) for name in GOLDEN]


def assert_on_record(run, name):
    wanted = GOLDEN[name]
    assert run.config.fingerprint == wanted["fingerprint"]
    rounds = wanted.get(f"rounds on {platform.machine()}", wanted["rounds"])  # of networks that processors round apart
    for found, recorded in zip(run.rounds(), rounds, strict=True):
        assert found["clients"] == recorded["clients"]
        assert found["steps"] == recorded["steps"]
        assert found["train_loss"] == pytest.approx(recorded["train_loss"], rel=1e-3)
        assert found["test_loss"] == pytest.approx(recorded["test_loss"], rel=1e-3)
        assert found["accuracy"] == pytest.approx(recorded["accuracy"], abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_fingerprints_and_first_rounds_are_those_on_record(name, tmp_path):
    """If this fails on purpose, raise config.run.RULES and write tests/golden_runs.json again (tests/golden.py)."""
    assert_on_record(execute(load_config(None, GOLDEN[name]["overrides"]), RunStore(tmp_path)), name)


WITHOUT_SPEED = """
import json, sys
sys.modules["fedeas.gpu"] = sys.modules["fedeas.fast"] = None  # importing them or a part of them fails
from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore
for name, overrides in json.load(sys.stdin).items():
    execute(load_config(None, overrides), RunStore(f"{sys.argv[1]}/{name}"))
assert not [name for name in sys.modules if name.startswith(("fedeas.gpu.", "fedeas.fast."))]
"""


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_without_the_rooms_that_exist_for_speed_runs_are_those_on_record(slow, tmp_path):
    asked = {name: GOLDEN[name]["overrides"] for name in GOLDEN if (name == "resnet") == slow}
    subprocess.run([sys.executable, "-c", WITHOUT_SPEED, tmp_path], input=json.dumps(asked), text=True, check=True)
    for name in asked:
        [run] = RunStore(tmp_path / name).all()
        assert_on_record(run, name)
