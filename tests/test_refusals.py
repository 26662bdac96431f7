"""The command line refuses impossible requests at once: one line, exit code 2, and no files left."""

import json
import os

import numpy as np
import pytest
from refusals import refusals

from fedeas import FedEAS, InputError, LabelCounts, PolicyError, SpecError, Uniform, parse_policy
from fedeas.cli import main
from fedeas.config import load_config
from fedeas.data.partition import Partition, dirichlet, iid, paper_replay

COUNTS = "client,x,y\na,90,1\nb,1,50\n"
LONG_NUMBER = "9" * 5000

PLANS = [
    ["--policy", "fedeas(beta=1_)"],
    ["--policy", "fedeas(beta=1e999)"],
    ["--policy", f"uniform(budget={'9' * 300})"],
    ["--policy", "uniform(budget=10000000000000000)"],
    ["--policy", "fedeas(beta=1e300)"],
    ["--policy", "fedeas(beta=1e300, gamma=1e300)"],
    ["--policy", "uniform(" * 200],
    ["--policy", "fedeas(beta=\x00)"],
    ["--beta", "1e300"],
    ["--beta", "nan"],
    ["--total", LONG_NUMBER[:4000]],
    ["--total", "-1"],
    ["--minutes", "1e307", "--images-per-second", "9"],
    ["--minutes", "nan", "--images-per-second", "9"],
    ["--max-share", "nan"],
    ["--min-removed", "2"],
    ["--out", "plan.exe"],
    ["--out", "x" * 300 + ".csv"],
    ["--plot", "x" * 300 + ".png"],
]
PARTITIONS = [
    ["--seed", "-1"],
    ["--seed", str(2**64)],
    ["--seed", "-5", "--scheme", "iid"],
    ["--scheme", "paper", "--seed", str(2**32)],
    ["--alpha", "1e-7"],
    ["--alpha", "nan"],
    ["--alpha", "-1"],
    ["--clients", "0"],
    ["--clients", str(10**15)],
    ["--scheme", "shards", "--per-client", str(10**15)],
    ["--min-size", str(10**15)],
]
RUNS = [
    ["x" * 300 + "=1"],
    ["label=" + "x" * 300],
    ["seed=-1"],
    [f"seed={2**64}"],
    [f"seed={LONG_NUMBER}"],
    [f"train.lr={LONG_NUMBER}"],
    ["train.lr=" + "[" * 5000],
    ["train.lr=" + "{a=" * 5000],
    [".".join(["a"] * 5000) + "=1"],
    ["engine.threads=99999"],
    ["engine.device=meta"],
    ["engine.device=\x1b[31m"],
    ["policy=fedeas(beta=1_)"],
    ["data.dataset=npz:/dev/zero"],
    ["data.dataset=folder:/dev/zero"],
    ["/dev/zero"],
]


def refused(arguments, capsys):
    """The command's one line of error."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2, error
    assert "Traceback" not in error
    return error


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts.csv").write_text(COUNTS)
    yield tmp_path
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("counts.csv", "in")] == []


def test_all_messages_have_one_style():
    found = refusals()
    assert len(found) > 300
    assert [(each.place, each.rule) for each in found if each.rule] == []


@pytest.mark.parametrize("arguments", PLANS, ids=lambda each: each[-1][:20].encode("unicode_escape").decode())
def test_plan_refuses(arguments, capsys):
    assert refused(["plan", "counts.csv", *arguments], capsys).count("\n") == 1


@pytest.mark.parametrize("arguments", PARTITIONS, ids=" ".join)
def test_partition_refuses(arguments, capsys):
    assert refused(["partition", "cifar10", *arguments], capsys).count("\n") == 1


@pytest.mark.parametrize("arguments", RUNS, ids=lambda each: each[-1][:20].encode("unicode_escape").decode())
def test_run_refuses(arguments, capsys):
    assert refused(["run", *arguments], capsys).count("\n") == 1


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000, "a." * 5000 + "b = 1", f"seed = {LONG_NUMBER}", "seed = 1\xff", "label = '\0'"]
)
def test_an_impossible_config_is_refused(folder, capsys, text):
    (folder / "in").mkdir()
    (folder / "in" / "run.toml").write_text(text, encoding="latin-1")
    assert refused(["run", str(folder / "in" / "run.toml")], capsys).count("\n") == 1


def test_a_config_is_read_from_a_regular_file_only(folder):
    (folder / "in").mkdir()
    os.mkfifo(folder / "in" / "pipe.toml")
    for path in (folder / "in" / "pipe.toml", "/dev/zero"):
        with pytest.raises(InputError, match="give a regular file"):
            load_config(path)


@pytest.mark.parametrize("override", ["label=\0", "\0=1", "policy=fedeas\0"])
def test_a_nul_in_an_override_is_refused(folder, override):
    with pytest.raises(InputError):
        load_config(None, [override])


def test_an_archive_that_would_fill_the_memory_is_refused(folder):
    (folder / "in").mkdir()
    np.savez_compressed(folder / "in" / "bomb.npz", labels=np.zeros(2**26, dtype=np.int64))
    with pytest.raises(InputError, match="would become 536,8"):
        Partition.load(folder / "in" / "bomb.npz")


def test_a_hopeless_draw_is_refused_and_others_report_each_attempt(folder):
    labels, told = np.repeat(np.arange(10), 100), []
    with pytest.raises(InputError, match="no Dirichlet"):
        dirichlet(labels, 20, 1e-7, on_draw=told.append)
    assert told == []
    split = dirichlet(labels, 20, 0.1, on_draw=told.append)
    assert told == list(range(1, split.recipe["draws"] + 1))


def test_an_unlikely_draw_is_not_called_hopeless(folder):
    """A draw that succeeds with a chance of some percent is tried."""
    labels = np.repeat(np.arange(2), 1000)
    assert dirichlet(labels, 4, 0.02, seed=1).counts.num_clients == 4


@pytest.mark.parametrize("seed", [-1, 2**63, 2**200])
def test_seeds_out_of_range_are_refused(folder, seed):
    for split in (iid, dirichlet, paper_replay):
        arguments = [[0, 1] * 50, 2] + ([1.0] if split is not iid else [])
        with pytest.raises(InputError, match="seed"):
            split(*arguments, seed=seed)


def test_numbers_too_large_for_totals_are_refused(folder):
    counts = LabelCounts([[100, 0]])
    with pytest.raises(PolicyError, match="smaller beta"):
        FedEAS(beta=1e12).allocate(counts)
    with pytest.raises(PolicyError, match="at most"):
        Uniform(budget=10**15 + 1)
    with pytest.raises(SpecError, match="cannot read the number '1_'"):
        parse_policy("fedeas(beta=1_)")
    assert Uniform(budget=10**15).allocate(counts).total == 10**15
    assert json.dumps(FedEAS(beta=1e9).allocate(counts).total)
