"""Tables of runs for the terminal: which rounds accuracy covers, and how far methods differ."""

import re

import pytest
from rich.console import Console

from fedeas.cli.display import comparison_table, output, runs_tables, states_table, table
from fedeas.config import RunConfig
from fedeas.core.errors import InputError
from fedeas.planning.policies import FullBalance, Uniform
from fedeas.planning.request import compare_policies
from fedeas.runs.store import RunStore
from reproduction.published import example_counts

SECONDS = {"generate": 1.0, "train": 2.0, "total": 3.0}


@pytest.fixture
def add(tmp_path):
    def make(label, seed, accuracy, policy="no-generation", window=(19, 20), config=(), **more):
        run = RunStore(tmp_path).open(RunConfig(label=label, seed=seed, policy=policy, **dict(config)))
        summary = {"accuracy": accuracy, "window": window, "final": accuracy + 0.01, "peak": 0.99, "steps": 1200}
        summary |= {"samples": None, "total": 7, "imbalance_removed": 0.5, "gamma_hat": None, "seconds": SECONDS}
        run.write_json("summary.json", {**summary, **more})
        return run

    return make


def shown(runs, reference=None, width=80):
    """The lines of both tables, each as its cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in printed(runs_tables(runs, reference), width).splitlines()]


def printed(shown, width=80):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(shown)
    assert all(len(line) <= width for line in captured.get().splitlines())
    return captured.get()


def row(lines, label, place=0):
    return [cells for cells in lines if cells[0] == label][place]


def test_a_row_has_mean_and_deviation_of_the_window_and_of_the_end(add):
    lines = shown([add("ours", seed, value) for seed, value in enumerate((0.5, 0.7))])
    assert row(lines, "ours") == ["ours", "2", "60.0 ± 14.1", "61.0 ± 14.1"]
    assert row(lines, "ours", 1) == ["ours", "7", "50.0", "99.0", "-", "1,200", "-", "1.00", "2.0"]


@pytest.mark.parametrize(("answers", "note"), [(["unknown", None], "unknown"), (["unknown", "seen"], "seen")])
def test_every_table_says_what_a_generator_may_have_seen(add, answers, note):
    runs = [add("ours", seed, 0.5, **({"seen": each} if each else {})) for seed, each in enumerate(answers)]
    notes = {"unknown": "ancestors unknown", "seen": "the run's images seen"}
    both = [*runs, add("plain", 0, 0.6, policy="full-balance")]
    lines = shown(both, width=120)
    for place in (0, 1):
        assert row(lines, f"ours ({notes[note]})", place)
        assert row(lines, "plain", place)
    listed = printed(states_table(both), 200).splitlines()
    for run, answer in zip(runs, answers, strict=True):
        (line,) = [line for line in listed if run.path.name in line]
        assert {each: words in line for each, words in notes.items()} == {each: each == answer for each in notes}
    assert "generator" not in printed(states_table(both[2:]), 200)


def test_differences_to_the_reference_are_paired_and_fit_a_narrow_terminal(add):
    values = {"ours": (0.80, 0.82, 0.81), "none": (0.70, 0.71, 0.72), "other": (0.82, 0.81, 0.80)}
    policies = {"ours": "fedeas", "none": "no-generation", "other": "full-balance"}
    runs = [add(name, s, v, policies[name]) for name, each in values.items() for s, v in enumerate(each)]
    assert row(shown(runs, "ours"), "none")[4:] == ["−10.00", "−12.48 to −7.52", "lower"]
    lines = shown(runs, "ours", width=100)
    assert row(lines, "other")[4:] == ["0.00", "−4.30 to 4.30", "no difference shown"]
    assert row(lines, "ours")[4:] == ["reference"]


def test_one_seed_has_no_interval(add):
    lines = shown([add("ours", 0, 0.8, "fedeas"), add("none", 0, 0.7)], "ours", width=100)
    assert row(lines, "none")[4:] == ["−10.00", "one seed: no interval"]


def test_rounds_are_in_the_head_or_in_each_row_if_they_differ(add):
    ours, longer = add("ours", 0, 0.8), add("longer", 0, 0.8, "fedeas", window=(181, 200))
    assert any("19-20" in cells for cells in shown([ours]))
    both = shown([ours, longer])
    assert (row(both, "ours")[2], row(both, "longer")[2]) == ("19-20", "181-200")


def test_unfinished_runs_are_listed_with_their_progress(add):
    run = add("ours", 0, 0.8)
    (run.path / "summary.json").unlink()
    run.append_round({"round": 1, "accuracy": 0.1})
    (line,) = [" ".join(cells) for cells in shown([run], width=100) if cells != [""]]
    assert line == f"unfinished: {run.path.name} (1 of 200 rounds)"


def test_runs_with_one_label_are_told_apart_by_what_differs(add):
    parts = {"algorithm": "fedprox", "model": {"name": "python:mine:Net"}, "generator": "python:mine:draw"}
    runs = [add("mine", 0, 0.5, "fedeas", config={key: part}) for key, part in parts.items()]
    names = {cells[0] for cells in shown(runs, width=200) if cells[-1] == "51.0"}
    assert len(names) == 3
    assert {"fedeas(beta=12) + fedprox(mu=0.01)"} < names


def test_one_config_under_two_labels_is_shown_twice(add):
    lines = shown([add("a", 0, 0.5), add("a", 1, 0.7), add("b", 0, 0.6)], "a")
    assert (row(lines, "a")[1:3], row(lines, "b")[1:3]) == (["2", "60.0 ± 14.1"], ["1", "60.0"])


def test_methods_on_other_clients_are_not_compared(add):
    here, there = add("here", 0, 0.8), add("there", 0, 0.7, config={"partition": {"clients": 7}})
    assert len(row(shown([here, there], "here"), "there")) == 4


def test_an_unknown_reference_is_answered_with_the_names(add):
    with pytest.raises(InputError, match="'here', 'there'"):
        runs_tables([add("here", 0, 0.8), add("there", 0, 0.7, "fedeas")], "nowhere")


def test_directories_are_never_broken_and_other_columns_are_whole_if_there_is_room(add):
    label = "a-rather-long-label-of-a-study-on-cifar10"
    run = add(label, 7, 0.8, "uniform(budget=fedeas(beta=12))")
    assert run.path.name in printed(states_table([run])).split()
    assert {run.config.policy, "7", "finished"} <= set(printed(states_table([run]), 200).split())


def test_a_comparison_is_whole_in_a_narrow_terminal():
    counts, policy = example_counts(), Uniform(budget=FullBalance())
    chosen = policy.allocate(counts)
    text = printed(comparison_table(counts, compare_policies(counts, policy, chosen), chosen))
    assert "…" not in text
    assert f"{chosen.total:,}" in text


@pytest.mark.parametrize("width", [30, 80])
def test_a_narrow_table_loses_no_character(width):
    text = printed(table("title", {"name": ["x" * 10], "long": ["y" * 30], "short": ["z"]}), width)
    assert [text.count(letter) for letter in "xyz"] == [10, 30, 1]


def test_a_pipe_has_room_for_everything_unless_its_width_is_set(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output().width > 500
    monkeypatch.setenv("COLUMNS", "90")
    assert output().width == 90
