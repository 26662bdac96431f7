"""``python -m reproduction`` on digits."""

import csv
import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from fedeas import FedEAS
from fedeas.core.errors import InputError, RunError
from fedeas.federation.run import identified
from fedeas.runs import pack_runs, packed
from fedeas.runs.store import RunStore, read_run, sound_runs
from reproduction import claims
from reproduction import reproduction as making
from reproduction.artefacts import ARTEFACTS, artefacts
from reproduction.command import main
from reproduction.figures import style
from reproduction.figures.runs import curves_at_equal_budget
from reproduction.methods import FEDAVG, FEDEAS, METHODS
from reproduction.published import setting
from reproduction.reproduction import STATEFUL, Places, Reproduction, carry_out
from reproduction.results import Results
from reproduction.studies import PROFILES, study
from reproduction.tables import comma_separated, fill

SMOKE = study("smoke")


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The folder in which ``python -m reproduction all --profile smoke`` has run."""
    folder = tmp_path_factory.mktemp("reproduced")
    call("all", *places(folder), "--keep")
    return folder


def places(folder):
    kept = ["--results", folder / "results", "--out", folder / "out"]
    return ["--profile", "smoke", "--runs", folder / "runs", *kept]


def cells(folder, name):
    return list(csv.DictReader((folder / "out" / f"{name}.csv").read_text().splitlines()))


def call(*arguments, code=0):
    with pytest.raises(SystemExit) as stopped:
        main([str(each) for each in arguments])
    assert (stopped.value.code or 0) == code


def test_all_artefacts_run_on_digits(everything):
    written = {path.name for path in (everything / "out").iterdir()}
    for artefact in ARTEFACTS:
        if artefact.sheets(SMOKE):
            assert {f"{artefact.name}.{ending}" for ending in ("md", "csv")} <= written
            rows = cells(everything, artefact.name)
            assert not any(row["status"] == "not run" for row in rows)
            assert len({(row["table"], row["row"], row["column"]) for row in rows}) == len(rows)
    pictures = {"fig1a-demand", "fig1b-accuracy", "fig2a-concentration", "fig2b-reduction", "fig3-overview"}
    pictures |= {"fig4-convergence", "fig5a-budgets", "fig5b-selection", "supp-closed-form"}
    pictures |= {"references-courses", "references-imbalance"}
    assert {f"{name}.{ending}" for name in pictures for ending in ("png", "svg")} | {"samples.png"} <= written


def test_kept_results_alone_show_the_same_tables(everything, tmp_path, capsys):
    call("table1", *places(everything), "--show", "--markdown")
    first = capsys.readouterr().out
    call(
        "table1",
        "--profile",
        "smoke",
        "--runs",
        tmp_path / "none",
        "--results",
        everything / "results",
        "--show",
        "--markdown",
    )
    assert capsys.readouterr().out == first
    assert "not run" not in first


def test_the_tables_numbers_are_those_of_the_summaries(everything):
    for row in cells(everything, "table1"):
        (method,) = [each for each in METHODS.values() if each.title == row["row"]]
        (where,) = [each for each in SMOKE.settings if SMOKE.title(each) == row["column"]]
        (run,) = Results([everything / "runs"]).seeds(SMOKE.config(where, method)).values()
        assert float(row["ours"]) == pytest.approx(100 * run.summary()["accuracy"])


def test_times_have_their_own_command(tmp_path):
    call("wall-clock", *places(tmp_path))
    rows = cells(tmp_path, "wall-clock")
    assert [row["seeds"] for row in rows] == ["1", "1", "1"]
    minutes = [float(row["ours"]) for row in rows]
    assert minutes[2] == pytest.approx(minutes[1] / minutes[0])


def test_earlier_finished_runs_are_kept_too(everything, tmp_path):
    later = tmp_path / "later"
    call("fig1", *places(everything), "--results", later, "--keep")
    assert len(list(later.glob("*.parquet"))) == len(artefacts("fig1")[0].configs(SMOKE))


def test_a_run_has_one_directory_for_all_artefacts():
    for name, profile in PROFILES.items():
        directories, own = {}, study(name, "clean" if profile.held_out else "paper")
        for artefact in ARTEFACTS:
            for config in artefact.configs(own):
                assert directories.setdefault(config.fingerprint, config.directory) == config.directory
        assert len(set(directories.values())) == len(directories)


def test_an_error_of_all_runs_is_reported_once_before_any_starts(tmp_path, capsys):
    call("table1", *places(tmp_path), "--start", "nonsense", code=2)
    assert capsys.readouterr().err.count("nonsense") == 1
    assert not (tmp_path / "runs").exists()


def test_missing_data_are_reported_once_and_write_no_tables(tmp_path, capsys):
    where = [*places(tmp_path)[2:], "--precision", "fp32", "--data-root", tmp_path]
    call("fig1", *where, code=1)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("8 runs on cifar10 are left out") == said.err.count("no such folder") == 1
    assert not list((tmp_path / "out").iterdir())


def test_no_start_has_seen_the_clients_images():
    for start in ("cifar100", "cifar100-imagenet-stem"):
        configs = [study("full", start=start).config(where, FEDAVG) for where in study("full").settings]
        assert not any(config.model.weights.startswith(f"{config.data.dataset}-") for config in configs)
        assert all(config.model.weights for config in configs)


@pytest.mark.parametrize(
    ("option", "words"),
    [("--out", "cannot be created"), ("--results", "cannot be created"), ("--runs", "not a folder")],
)
def test_a_folder_that_cannot_be_created_is_reported_before_any_run_starts(option, words, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    call("fig1", *places(tmp_path), option, tmp_path / "file", "--keep", code=2)
    assert capsys.readouterr().err.count(words) == 1
    assert not (tmp_path / "runs").exists()


def test_an_estimate_starts_nothing(tmp_path, capsys):
    call("all", *places(tmp_path), "--estimate")
    assert not (tmp_path / "runs").exists()
    out = capsys.readouterr().out
    assert all(artefact.name in out for artefact in ARTEFACTS)


def test_without_a_gpu_the_full_study_is_refused_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    call("table1", "--runs", tmp_path / "runs", "--results", tmp_path / "results", code=2)
    assert "needs a GPU" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_does_not_stop_the_others(everything):
    configs = artefacts("fig1")[0].configs(SMOKE)
    store = RunStore(everything / "runs")

    def execute(config, minutes=None):
        if config.policy.startswith("uniform"):
            raise InputError("no such weights")
        if config.policy.startswith("missing"):
            raise RunError("disk full")
        return store.at(identified(config))

    outcomes = list(carry_out(configs, execute))
    assert len(outcomes) == len(configs)  # those that are there are finished
    assert {o.problem for o in outcomes} == {"", "no such weights", "disk full"}
    assert all((o.run is None) == bool(o.problem) for o in outcomes)


def test_a_damaged_run_is_left_out_of_the_figures(everything, tmp_path, caplog):
    shutil.copytree(everything / "runs", tmp_path / "runs")
    run = RunStore(tmp_path / "runs").at(identified(SMOKE.config(setting("c10-k100-a0.1"), FEDEAS)))
    (run.path / "rounds.jsonl").write_text("{\n")
    call("references", *places(tmp_path), "--show", "--out", tmp_path / "out")
    assert (tmp_path / "out" / "references-courses.png").exists()
    assert f"left out: {run.path / 'rounds.jsonl'}" in caplog.text


def curves_drawn(folder):
    lines = curves_at_equal_budget(Reproduction(SMOKE, Results([folder]))).axes[0].lines
    return sum(line.get_color() != style.INK for line in lines)  # all but the threshold


def test_packed_runs_have_curves_if_their_rounds_were_packed(everything, tmp_path, caplog):
    runs = RunStore(everything / "runs").all()
    for with_rounds, expected in ((True, curves_drawn(everything / "runs")), (False, 0)):
        pack_runs(runs, tmp_path / "some.parquet", with_rounds)
        assert curves_drawn(tmp_path) == expected
    assert curves_drawn(everything / "runs") > 3
    assert not caplog.text  # runs without rounds are not called damaged


class Done:
    def __init__(self, finished=True):
        self.finished = finished

    def summary(self):
        return {}


@pytest.mark.parametrize(
    ("minutes", "takes", "expected"),
    [(10, 275, 2), (0.5, 5, 5), (0.1, 20, 1), (10, 1, 8)],
    ids=["almost up", "quick runs", "the first", "all of them"],
)
def test_only_the_first_run_is_started_when_little_time_is_left(minutes, takes, expected):
    configs, now = artefacts("fig1")[0].configs(SMOKE), [0.0]

    def execute(config, minutes=None):
        now[0] += takes
        return Done()

    begun = list(carry_out(configs, execute, minutes, lambda: now[0]))
    assert [outcome.config for outcome in begun] == configs[:expected]


def test_a_finished_run_with_a_damaged_summary_is_reported(everything, tmp_path):
    shutil.copytree(everything / "runs", tmp_path / "runs")
    configs = [identified(config) for config in artefacts("fig1")[0].configs(SMOKE)]
    store = RunStore(tmp_path / "runs")
    (store.open(configs[0]).path / "summary.json").write_text("{")
    problems = [outcome.problem for outcome in carry_out(configs, lambda config, minutes: store.open(config))]
    assert "damaged" in problems[0]
    assert not any(problems[1:])


def test_after_a_paused_run_no_other_starts():
    configs = artefacts("fig1")[0].configs(SMOKE)
    outcomes = list(carry_out(configs, lambda config, minutes: Done(finished=config != configs[2])))
    assert [outcome.config for outcome in outcomes] == configs[:3]


def test_a_resumed_run_counts_its_own_earlier_images_as_generated(tmp_path):
    """Images from before the pause, read from the bank, are not counted as another run's."""
    from fedeas.federation.run import execute

    config = SMOKE.config(setting("c10-k20-a0.1"), FEDEAS)
    while not (pieces := execute(config, RunStore(tmp_path / "pieces"), pause=lambda record: True)).finished:
        pass
    whole = execute(config, RunStore(tmp_path / "whole")).summary()
    assert pieces.summary()["images"] == whole["images"] == {"found": 0, "made": whole["generated"]}
    after = execute(config.model_copy(update={"seed": 1}), RunStore(tmp_path / "whole")).summary()
    assert 0 < after["images"]["found"] <= sum(after["images"].values()) == after["generated"]


def test_a_run_resumed_on_another_machine_equals_an_uninterrupted_one(everything, tmp_path):
    """Paused at the end of a round, copied, and resumed elsewhere."""
    from fedeas.federation.run import execute

    where = setting("c10-k20-a0.1")
    for method in (FEDAVG, FEDEAS):
        config = SMOKE.config(where, method)
        part = execute(config, RunStore(tmp_path / "one"), pause=lambda record: True)
        assert not part.finished
        assert len(part.rounds()) == 1
        shutil.copytree(part.path, tmp_path / "two" / part.path.name)
        rest = execute(config, RunStore(tmp_path / "two"))
        whole = read_run(everything / "runs" / identified(config).directory)
        assert rest.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
        assert [record["accuracy"] for record in rest.rounds()] == [record["accuracy"] for record in whole.rounds()]
        assert rest.summary()["accuracy"] == whole.summary()["accuracy"]


def test_only_algorithms_with_client_states_should_stay_on_one_machine():
    where = setting("c10-k20-a0.1")
    algorithms = {name: study("full").config(where, method).algorithm for name, method in METHODS.items()}
    staying = {name for name, algorithm in algorithms.items() if algorithm.startswith(STATEFUL)}
    assert staying == {"scaffold", "moon"}


def of(name, where, seeds=1, only="*"):
    return Reproduction(SMOKE, where.scan(), artefacts(name), seeds, only)


def test_python_gives_the_same_as_the_command(everything, tmp_path):
    done = of("table1", Places(everything / "runs", tmp_path))
    assert not done.missing()
    (table,) = done.tables()
    assert comma_separated(table) == (everything / "out" / "table1.csv").read_text()


def test_missing_runs_are_made_kept_and_reported(tmp_path):
    lines, where = [], Places(tmp_path / "runs", tmp_path / "results", keeps=True)
    done = of("combination", where)
    before = done.missing()
    assert len(before) == 3
    done.train(where, tell=lines.append)
    assert [outcome.config for outcome in done.outcomes] == before
    assert len(lines) == 3
    assert all(table.seeds for table in done.tables())
    assert not done.missing()
    assert len(list((tmp_path / "results").glob("*.parquet"))) == 3


def test_a_pattern_chooses_the_runs_that_are_made(tmp_path):
    where = Places(tmp_path / "runs", tmp_path / "results")
    chosen = min((config.label for config in of("combination", where).missing()), key=len)
    done = of("combination", where, only=f"*{chosen[3:]}", seeds=2)
    done.train(where)
    assert {outcome.config.label for outcome in done.outcomes} == {chosen}
    assert [run.config.seed for run in RunStore(tmp_path / "runs").all()] == [0, 1]
    assert not done.missing()
    assert [(runs, left.runs) for _, runs, left in done.estimates()] == [(2, 0)]


@pytest.mark.parametrize(("name", "pattern"), [("combination", "fedeas"), ("samples", "nothing*")])
def test_a_pattern_that_matches_no_run_is_refused(tmp_path, name, pattern):
    with pytest.raises(InputError):
        of(name, Places(tmp_path, tmp_path), only=pattern).check_pattern()


def test_counts_are_printed_and_succeed(capsys):
    call("counts")
    assert "0 MISMATCH" in capsys.readouterr().err


def test_a_number_that_does_not_match_fails(capsys, monkeypatch):
    monkeypatch.setattr(claims, "FedEAS", lambda *a, **k: FedEAS(*a, **{**k, "fill": "all"}))
    call("counts", code=1)
    assert "MISMATCH" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pictures"), [("fig2", 2), ("closed-form", 1)])
def test_figures_are_drawn(tmp_path, name, pictures, capsys):
    call(name, "--out", tmp_path)
    assert str(tmp_path) in capsys.readouterr().err
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.svg"))) == pictures


def test_an_unknown_name_is_refused_with_the_known_ones(capsys):
    call("nonsense", code=2)
    assert "table1" in capsys.readouterr().err


def test_the_command_runs_from_any_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "reproduction", "table2", "--show", "--markdown"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, check=True,
    )  # fmt: skip
    assert "Budget factors" in done.stdout


def test_a_second_call_repeats_no_run_reads_each_once_and_builds_each_table_once(everything, monkeypatch, capsys):
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in RunStore(everything / "runs").all()}
    read, built = Counter(), Counter()

    def counting_read(paths):
        read.update(path.resolve() for path in paths)
        return sound_runs(paths)

    def counting_fill(sheet, found):
        built[sheet.title] += 1
        return fill(sheet, found)

    monkeypatch.setattr(packed, "sound_runs", counting_read)
    monkeypatch.setattr(making, "fill", counting_fill)
    monkeypatch.setattr(style, "FORMATS", ())  # drawing takes most of the time
    call("all", *places(everything), "--keep")
    assert " of " not in capsys.readouterr().out.split("Accuracy, %")[0]  # no run was begun
    assert before == {path: (path / "summary.json").stat().st_mtime_ns for path in before}
    folders = {path.parent.resolve() for path in everything.glob("*/*/summary.json")}
    assert read == Counter(folders)
    titles = {sheet.title for artefact in ARTEFACTS for sheet in artefact.sheets(SMOKE)}
    assert built == Counter(titles)


def test_a_folder_given_twice_is_read_once(everything):
    once, twice = Results([everything / "runs"]), Results([everything / "runs", everything / "." / "runs"])
    config = SMOKE.config(setting("c10-k20-a0.1"), FEDEAS)
    assert len(once.copies(config)) == len(twice.copies(config)) == 1


def test_the_summary_and_the_page_of_claims_need_no_runs(tmp_path, capsys):
    where = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    call("summary", *where)
    assert "not been run" in capsys.readouterr().out
    call("answers", *where, "--out", tmp_path / "out")
    capsys.readouterr()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"beyond-gains.png", "beyond-gains.svg"}
    for form in ([], ["--markdown"]):
        call("reproduces", *where, *form)
        assert "CIFAR-100" in capsys.readouterr().out  # among what was not run


READERS = (
    ["table1", "--show"], ["summary"], ["reproduces"], ["findings"], ["advice"], ["answers"], ["contrasts"],
    ["economies"], ["robustness"],
)  # fmt: skip


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_a_missing_folder_of_results_is_told(command, tmp_path, capsys):
    where = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    call(*command, *where)
    assert capsys.readouterr().err.count("--results") == 1
    (tmp_path / "results").mkdir()
    call(*command, *where)
    assert capsys.readouterr().err == ""
