"""The way from one's own clients to a run and its page, on the command line."""

import csv
import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

import fedeas
from fedeas.cli.progress import Rounds
from fedeas.config import load_config
from fedeas.core.errors import InputError
from fedeas.data.sources import load_dataset
from fedeas.federation.split import split_data
from fedeas.federation.worker import LocalEngine
from fedeas.views.web.choices import read_upload

CLASSES = ("ant", "bee")
SIZES = {"Ulm": (30, 2), "Köln": (1, 25), "Kiel": (10, 10)}
SMALL = ("rounds.total=2", "train.steps=1", "engine.threads=1")


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    """Run a command in an empty folder."""
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return run


@pytest.fixture
def images(tmp_path):
    for client, sizes in SIZES.items():
        for label, count in zip(CLASSES, sizes, strict=True):
            folder = tmp_path / "images" / client / label
            folder.mkdir(parents=True)
            for number in range(count):
                shade = np.random.default_rng(number).integers(0, 128, (8, 8), dtype=np.uint8)
                Image.fromarray(shade + np.uint8(100 * (label == "bee"))).save(folder / f"{number}.png")


def test_a_folder_of_clients_becomes_a_run_in_three_commands(run, images, tmp_path):
    code, out, _ = run("plan", "folder:images", "--auto", "--out", "run.toml")
    assert (code, "no test part" in out) == (0, True)
    assert run("run", "run.toml", *SMALL)[0] == 0
    code, out, _ = run("report", *(tmp_path / "runs").glob("planned-*"))
    assert code == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_plan_of_client_folders_becomes_their_images(run, images, tmp_path):
    assert run("plan", "folder:images", "--min-removed", "0.5", "--out", "plan.csv")[0] == 0
    generate = ("generate", "plan.csv", "--generator", "gaussian", "--dataset", "folder:images", "--out", "made")
    assert run(*generate, "--client", "Köln")[0] == 0
    code, out, _ = run(*generate)
    assert code == 0
    with (tmp_path / "plan.csv").open() as file:
        plan = {row.pop("client"): {name: int(count) for name, count in row.items()} for row in csv.DictReader(file)}
    made = {
        client: {label: len([*(tmp_path / "made" / client / label).glob("*.png")]) for label in CLASSES}
        for client in plan
    }
    assert made == plan
    assert f"{sum(map(sum, (row.values() for row in plan.values()))):,} images" in out


@pytest.mark.parametrize("out", ["images", "images/new", "."])
def test_images_of_a_plan_never_touch_a_users_own(run, images, tmp_path, out):
    assert run("plan", "folder:images", "--min-removed", "0.5", "--out", "plan.csv")[0] == 0
    before = sorted(tmp_path.rglob("*"))
    made = run("generate", "plan.csv", "--generator", "gaussian", "--dataset", "folder:images", "--out", out)
    assert (made[0], sorted(tmp_path.rglob("*"))) == (2, before)


def test_a_saved_split_becomes_a_run(run, images):
    assert run("partition", "folder:images", "--out", "split.npz")[0] == 0
    assert run("plan", "split.npz", "--beta", "3", "--out", "run.toml")[0] == 0
    config = load_config("run.toml")
    found = split_data(config, load_dataset(config.data.dataset))
    assert found.counts.clients == ("Kiel", "Köln", "Ulm")


def test_python_plans_what_the_command_line_plans(run, images, tmp_path):
    for file in ("split.npz", "counts.csv"):
        assert run("partition", "folder:images", "--out", file)[0] == 0
    for name in ("folder:images", "split.npz", "counts.csv"):
        code, _, err = run("plan", name, "--beta", "3", "--out", "plan.csv")
        assert (code, err) == (0, "")
        plan = fedeas.plan(name, beta=3)
        plan.save("python.csv")
        assert (tmp_path / "python.csv").read_text() == (tmp_path / "plan.csv").read_text()
        assert plan.how


@pytest.mark.parametrize("name", ["folder:nowhere", "npz:nowhere.npz", "npz:mine.npz", "nowhere.npz", "nowhere.csv"])
def test_python_refuses_what_the_command_line_refuses(run, name, tmp_path):
    np.savez(tmp_path / "mine.npz", images=np.zeros((6, 8, 8), np.uint8), labels=[0, 1] * 3)  # it names no clients
    code, _, err = run("plan", name)
    with pytest.raises(fedeas.InputError) as refused:
        fedeas.plan(name)
    assert (code, err.strip()) == (2, f"error: {refused.value}")


def test_images_that_are_given_as_counts_are_named_as_datasets_are(run, images, tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros((4, 8, 8), np.uint8), labels=[0, 1, 0, 1])
    for name, remedy in (("images", "folder:images"), ("data.npz", "npz:data.npz")):
        code, _, err = run("plan", name)
        assert code == 2
        assert remedy in err
    with pytest.raises(InputError, match=r"npz:data\.npz"):
        read_upload("data.npz", (tmp_path / "data.npz").read_bytes())


@pytest.mark.parametrize("option", ["--classes=12", "--label-column=x"])
def test_options_of_tables_are_refused_for_what_is_no_table(run, images, option):
    assert run("partition", "digits", "--clients", 4, "--out", "split.npz")[0] == 0
    for name in ("folder:images", "split.npz"):
        code, _, err = run("plan", name, option)
        assert code == 2
        assert f"{option.partition('=')[0]} is for a table of counts, not for {name}" in err


def test_a_config_needs_images(run, tmp_path):
    (tmp_path / "counts.csv").write_text("client,a,b\nx,1,2\n")
    code, _, err = run("plan", "counts.csv", "--out", "run.toml")
    assert code == 2
    assert "a run needs images" in err
    assert not (tmp_path / "run.toml").exists()


def test_the_output_says_how_a_table_was_read_and_columns_can_be_named(run, tmp_path):
    (tmp_path / "counts.csv").write_text("befund,ort,anzahl\nx,A,3\ny,A,40\nx,B,50\ny,B,6\n")
    code, _, err = run("plan", "counts.csv")
    assert (code, "--client-column" in err) == (2, True)
    named = ("--client-column", "ort", "--label-column", "befund", "--count-column", "anzahl")
    code, out, _ = run("plan", "counts.csv", *named)
    assert code == 0
    assert {"'ort'", "'befund'", "'anzahl'"} <= set(out.replace(",", " ").replace(";", " ").split())


@pytest.mark.parametrize("arguments", [("--format", "gif"), ("--shape", "3"), ("--client", "Bonn")])
def test_generate_refuses_what_it_cannot_use(run, tmp_path, arguments):
    (tmp_path / "plan.csv").write_text("client,a,b\nx,1,2\n")
    code, _, err = run("generate", "plan.csv", "--generator", "gaussian", "--out", "made", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)


def test_without_a_terminal_each_round_is_a_line_unless_it_is_quiet(run):
    for seed, options in ((0, ()), (1, ("--quiet",))):
        code, out, _ = run("run", f"seed={seed}", "partition.clients=3", *SMALL, *options)
        assert code == 0
        assert sum(line.startswith(f"run seed {seed}, round") for line in out.splitlines()) == (0 if options else 2)


def test_the_time_left_is_that_of_the_remaining_rounds_without_images(capsys):
    lines = Rounds("mine", 0, 5)
    for number, seconds in ((1, {"train": 10.0, "generate": 90.0}), (2, {"train": 20.0})):
        lines({"round": number, "seconds": seconds, "train_loss": 1.0, "generated": 7})
    assert [line.rsplit(", ", 1)[1] for line in capsys.readouterr().out.splitlines()] == ["40 s left", "45 s left"]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 9 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes. Error code 12"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_is_one_line_and_the_same_command_resumes(run, monkeypatch, error):
    command = ("run", "partition.clients=3", "engine.processes=1", "rounds.total=3", *SMALL[1:])
    train = LocalEngine.map

    def fail_later(self, task, broadcast, clients, round):
        if round == 2:
            raise error
        return train(self, task, broadcast, clients, round)

    monkeypatch.setattr(LocalEngine, "map", fail_later)
    code, _, err = run(*command)
    assert code == 3
    assert len(err.splitlines()) == 1
    assert "GPU 0" not in err
    monkeypatch.setattr(LocalEngine, "map", train)
    code, out, _ = run(*command)
    assert code == 0
    assert "round 1 of 3" not in out
    assert "round 3 of 3" in out


def test_other_errors_are_not_hidden(run, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(LocalEngine, "map", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        run("run", "partition.clients=3", "engine.processes=1", *SMALL)


def interrupted(*arguments):
    raise KeyboardInterrupt


def test_ctrl_c_says_after_which_round_and_the_same_command_resumes(run, monkeypatch):
    command = ("run", "partition.clients=3", "engine.processes=1", "rounds.total=3", *SMALL[1:])
    shown = Rounds.__call__

    def interrupt(self, record):
        shown(self, record)
        if record["round"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Rounds, "__call__", interrupt)
    code, _, err = run(*command)
    assert code == 130
    assert "after round 2 of 3" in err
    monkeypatch.setattr(Rounds, "__call__", shown)
    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "map", interrupted)
        code, _, err = run(*command)
    assert code == 130
    assert "first round" not in err
    code, out, _ = run(*command)
    assert code == 0
    assert "round 3 of 3" in out
