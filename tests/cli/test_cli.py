"""The command line as a person meets it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from pyarrow import parquet

from fedeas import KL, FedEAS, FullBalance, LabelCounts, read_counts, write_counts
from fedeas.data.partition import Partition
from reproduction.published import example_counts


@pytest.fixture
def counts_file(tmp_path):
    path = tmp_path / "counts.csv"
    write_counts(path, LabelCounts([[90, 0, 10], [30, 40, 30]], clients=["ann", "bob"], classes=["cat", "dog", "owl"]))
    return path


def test_help_says_what_each_argument_is(run):
    for command, words in {
        "plan": "Label counts: CSV, Parquet or NPY",
        "run": "key=value, such as train.lr=0.05",
    }.items():
        code, out, _ = run(command, "--help")
        assert code == 0
        assert words in out


def test_the_example_gives_the_papers_total(run):
    code, out, _ = run("plan", "--example")
    assert code == 0
    assert "13,437" in out
    assert "51.78%" in out


def test_a_plan_is_written_and_equals_the_library(run, counts_file, tmp_path):
    code, out, _ = run("plan", counts_file, "--beta", "5", "--out", tmp_path / "plan.parquet")
    assert code == 0
    assert "fedeas(beta=5)" in out
    table = parquet.read_table(tmp_path / "plan.parquet")
    assert table.column("client").to_pylist() == ["ann", "bob"]
    plan = FedEAS(5).allocate(read_counts(counts_file)).n
    assert np.array_equal(np.stack([table.column(c).to_numpy() for c in ("cat", "dog", "owl")], axis=1), plan)


WAYS = [
    "--total 20",
    "--auto --max-share 0.5",
    "--minutes 1 --images-per-second 0.5",
    "--max-share 0.2",
    "--min-removed 0.3",
    "--policy uniform",
    "--policy cost-aware(price=0.1)",
    "--policy kl(smoothing=2) --total 20",
    "--policy pool(fill=max) --max-share 0.2 --compare",
    "--compare",
]


@pytest.mark.parametrize("options", WAYS)
def test_every_way_to_give_a_budget_works(run, counts_file, options):
    code, out, err = run("plan", counts_file, *options.split())
    assert (code, err) == (0, "")
    assert "synthetic samples" in out


def test_a_budget_beyond_full_balance_is_pointed_out(run):
    need = FullBalance().allocate(example_counts()).total
    for total, beyond in ((need - 5_000, False), (100 * need, True)):
        code, out, _ = run("plan", "--example", "--total", str(total))
        assert code == 0
        assert (f"{need:,}" in out) == beyond


def test_a_comparison_shows_every_policy(run):
    code, out, _ = run("plan", "--example", "--compare")
    assert code == 0
    for name in (
        "no-generation",
        "uniform",
        "by-size",
        "missing-only",
        "fedeas(beta=12)",  # in the title, as the policy that was chosen
        "greedy",
        "optimal",
        "full-balance",
    ):
        assert name in out
    assert "1,679" in out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_policy_that_is_left_out_of_a_comparison_is_named(run, tmp_path, options):
    (tmp_path / "full.csv").write_text("client,cat,dog\nann,9,1\nbob,2,7\n")
    assert "missing-only" in "".join(run("plan", tmp_path / "full.csv", "--compare", *options)[1:])


@pytest.mark.parametrize("policy", ["pool", "kl", "uniform"])
def test_advice_is_for_the_budget_that_was_asked_for_whatever_the_policy_makes_of_it(run, policy):
    def advice(*options):
        return run("plan", "--example", "--auto", *options)[1].partition("policies to compare")[2]

    assert advice("--policy", policy) == advice() != ""


@pytest.mark.parametrize("options", ["--auto --max-share 0.5", "--compare"])
def test_a_plan_that_takes_long_says_so_beforehand(run, counts_file, monkeypatch, options):
    monkeypatch.setattr("fedeas.cli.progress.LONG", 1e-9)
    assert "2 clients" in run("plan", counts_file, *options.split())[2]


def test_too_little_memory_for_a_plan_names_what_needs_less(run, counts_file, tmp_path, monkeypatch):
    def fail(*arguments):
        raise MemoryError("Unable to allocate 130 MiB")

    monkeypatch.setattr(KL, "allocate", fail)
    code, _, err = run("plan", counts_file, "--policy", "kl", "--out", tmp_path / "plan.csv")
    assert code == 3
    assert len(err.splitlines()) == 1
    assert all(word in err for word in ("130 MiB", "Parquet", "--auto"))
    assert "batches" not in err
    assert not (tmp_path / "plan.csv").exists()


@pytest.mark.parametrize("option", ["--out", "--plot"])
def test_the_input_is_never_overwritten(run, counts_file, tmp_path, option):
    before = counts_file.read_bytes()
    for path in (counts_file, tmp_path / "." / "link.csv"):
        if path != counts_file:
            path.symlink_to(counts_file)
        code, _, err = run("plan", counts_file, option, path)
        assert code == 2
        assert str(path) in err
        assert counts_file.read_bytes() == before


@pytest.mark.parametrize("policy", ["fedeas", "uniform(budget=900)", "pool(distinct=900)", "pool(distinct=100000)"])
def test_compared_policies_make_at_most_as_many_images(run, policy):
    _, out, _ = run("plan", "--example", "--policy", policy, "--compare", "--json")
    compared = {each["policy"].partition("(")[0]: each for each in json.loads(out)["compared"]}
    most = compared[policy.partition("(")[0]]["generated"]
    assert all(each["generated"] <= most for name, each in compared.items() if name != "full-balance")
    assert compared["pool"]["generated"] == compared["pool"]["distinct"] < compared["pool"]["synthetic"]


@pytest.mark.parametrize(("ending", "start", "options"), [("png", b"\x89PNG", []), ("svg", b"<?xml", ["--compare"])])
def test_plots_are_drawn(run, counts_file, tmp_path, ending, start, options):
    code, out, _ = run("plan", counts_file, *options, "--plot", tmp_path / f"plan.{ending}")
    assert code == 0
    assert f"plan.{ending}" in out
    assert (tmp_path / f"plan.{ending}").read_bytes().startswith(start)


def test_partitions_are_drawn_and_written(run, tmp_path):
    code, out, _ = run("partition", "cifar10", "--scheme", "paper", "--out", tmp_path / "paper.csv")
    assert code == 0
    assert "45,007" in out
    assert np.array_equal(read_counts(tmp_path / "paper.csv").n, example_counts().n)
    for scheme in ("iid", "dirichlet", "shards"):
        code, _, _ = run("partition", "digits", "--scheme", scheme, "--clients", 5, "--out", tmp_path / f"{scheme}.npz")
        assert code == 0
        assert Partition.load(tmp_path / f"{scheme}.npz").counts.total == 1438


def test_the_shipped_tables_are_what_the_command_line_writes(run, tmp_path):
    from importlib import resources

    run("partition", "cifar100", "--scheme", "paper", "--clients", 100, "--out", tmp_path / "again.csv")
    shipped = resources.files("fedeas.planning.examples").joinpath("c100-k100-a0.1.csv").read_text()
    assert (tmp_path / "again.csv").read_text() == shipped


BAD_CALLS = {
    "plan nowhere.csv": "nowhere.csv: no such file",
    "plan": "give a file of label counts, or --example",
    "plan {counts} --example": "give a file of label counts, or --example",
    "plan --example --classes 12": "--classes is for a table of counts, not for --example",
    "plan --example --out {folder}/run.toml": "a run needs images, not counts alone",
    "plan --example --client-column x": "--client-column is for a table of counts",
    "plan {counts} --beta 0": "beta must be a finite number above 0, not 0.0",
    "plan {counts} --beta -3": "beta must be a finite number above 0, not -3.0",
    "plan {counts} --beta nan": "beta must be a finite number above 0, not nan",
    "plan {counts} --total -5": "total must be a whole number of samples, 0 or more, not -5",
    "plan {counts} --policy uniform --total -5": "budget must be 0 or more, not -5",
    "plan {counts} --beta 3 --auto": "give the budget in one way",
    "plan {counts} --policy fedeas(beta=": "policy spec 'fedeas(beta=': '(' was never closed",
    "plan {counts} --policy magic": "unknown policy 'magic'; known are",
    "plan {full} --policy missing-only(budget=5)": "missing-only cannot place 5 samples: every client holds",
    "plan {counts} --auto --min-removed 0.99 --max-share 0.01": "no beta meets both conditions",
    "plan {counts} --out {folder}/plan.xlsx": "cannot tell the format from '.xlsx'; use .csv, .parquet",
    "plan {counts} --out {folder}/none/plan.csv": "does not exist; create it first",
    "plan {counts} --out {folder}/plan.csv --plot {folder}/plan.bmp": "use a name that ends in .png or .svg",
    "partition mnist": "unknown dataset 'mnist'; known are digits",
    "partition digits --clients 5000": "clients must be between 1 and the 1,438 samples, not 5000",
    "partition digits --alpha 0": "partition.alpha: Input should be greater than 0",
    "partition digits --out {folder}/split.txt": "use .csv or .parquet for counts, .npz for who holds which sample",
}


@pytest.mark.parametrize("command", BAD_CALLS)
def test_bad_input_gives_one_line_exit_code_2_and_no_file(run, counts_file, tmp_path, command):
    full = tmp_path / "full.csv"
    write_counts(full, LabelCounts([[5, 1], [2, 9]]))
    before = sorted(path.name for path in tmp_path.iterdir())
    code, _, err = run(*command.format(counts=counts_file, full=full, folder=tmp_path).split())
    assert code == 2
    assert BAD_CALLS[command] in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_bad_row_leaves_no_output_behind(run, tmp_path):
    (tmp_path / "bad.csv").write_text("client,x,y\na,1,2\nb,-1,2\n")
    code, _, err = run("plan", tmp_path / "bad.csv", "--out", tmp_path / "plan.csv")
    assert code == 2
    assert err == f"error: {tmp_path}/bad.csv: row 2 (client 'b'), class 'x': negative count -1; give 0 or more\n"
    assert not (tmp_path / "plan.csv").exists()


def test_a_duplicate_far_down_leaves_no_output_behind(run, tmp_path):
    table = LabelCounts(np.ones((300_000, 8), dtype=int))
    write_counts(tmp_path / "twice.parquet", table)
    twice = parquet.read_table(tmp_path / "twice.parquet")
    column = twice.column("client").to_numpy().copy()
    column[-1] = 7
    parquet.write_table(twice.set_column(0, "client", [column]), tmp_path / "twice.parquet")
    code, _, err = run("plan", tmp_path / "twice.parquet", "--out", tmp_path / "plan.parquet")
    assert code == 2
    assert "duplicate client '7' (rows 8 and 300,000)" in err
    assert not (tmp_path / "plan.parquet").exists()


def test_the_installed_command_runs_as_a_process(counts_file):
    done = subprocess.run(
        [sys.executable, "-m", "fedeas", "plan", str(counts_file), "--beta", "x"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    done = subprocess.run([sys.executable, "-m", "fedeas", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "fedeas")


QUICK = ["train.lr=0.05", "train.epochs=1", "rounds.total=2", "partition.clients=5", "engine.threads=1"]


def test_a_federation_is_run_listed_and_reported(run, tmp_path):
    config = tmp_path / "quick.toml"
    config.write_text('label = "quick"\npolicy = "fedeas(beta=3)"\n')
    folder = tmp_path / "runs"
    code, out, _ = run("run", config, *QUICK, "--seeds", 2, "--runs", folder)
    assert code == 0
    assert "quick" in out
    assert "±" in out
    assert len(list(folder.glob("quick-*/summary.json"))) == 2
    code, out, _ = run("runs", "--runs", folder)
    assert code == 0
    assert out.count("finished") == 2
    assert out.count("quick") == 4  # a row for each run, then both seeds in one row of each table
    code, out, _ = run("report", *sorted(folder.glob("[!.]*")), "--out", tmp_path / "report.html")
    assert code == 0
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    for command in (("runs", "--runs", folder), ("report", *folder.glob("quick-*"))):
        code, _, err = run(*command, "--reference", "nobody")
        assert code == 2
        assert "'quick'" in err


def test_a_folder_whose_runs_are_all_damaged_is_not_called_empty(run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{")
    code, _, err = run("runs", "--runs", tmp_path)
    assert code == 2
    assert "none of these runs can be shown" in err


def test_a_run_names_its_directory_and_says_if_it_was_finished_before(run, tmp_path):
    texts = [run("run", *QUICK, "--runs", tmp_path)[2] for _ in range(2)]
    (directory,) = (path.parent for path in tmp_path.glob("*/summary.json"))
    assert all(str(directory) in text for text in texts)
    assert ["finished before" in text for text in texts] == [False, True]
    code, _, err = run("report", tmp_path)
    assert code == 2
    assert f"{tmp_path}/*" in err


def test_a_dry_run_prints_the_resolved_config_and_trains_nothing(run, tmp_path):
    code, out, _ = run("run", "train.lr=0.5", "--dry-run", "--runs", tmp_path / "runs", "--data-root", tmp_path)
    resolved = json.loads(out)
    assert code == 0
    assert resolved["train"]["lr"] == 0.5
    assert resolved["data"]["root"] == str(tmp_path)
    assert resolved["directory"].startswith("run-")
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_of_a_config_that_does_not_suit_its_data_is_an_error(run, tmp_path):
    code, out, err = run("run", "digits", "partition.clients=100000", "--dry-run", "--runs", tmp_path)
    assert (code, out) == (2, "")
    assert "100000" in err
    code, out, _ = run("run", "digits", "data.dataset=folder:nowhere", "--dry-run", "--runs", tmp_path)
    assert code == 0
    assert json.loads(out)["directory"] is None


def test_a_report_has_the_ending_of_a_page(run, tmp_path):
    code, _, err = run("report", tmp_path, "--out", tmp_path / "report.pdf")
    assert code == 2
    assert ".html" in err


def test_an_unfinished_run_is_listed_as_such(run, tmp_path):
    code, _, err = run("run", *QUICK, "train.lr=1e20", "--runs", tmp_path)
    assert code == 3
    assert "the loss is" in err
    assert len(err.strip().splitlines()) == 1
    code, out, _ = run("runs", "--runs", tmp_path)
    assert code == 0
    assert "stopped" in out
    assert "0 of 2" in out


BAD_RUNS = {
    "run none.toml": "none.toml: no such file",
    "run train.speed=1": "unknown key 'train.speed'",
    "run train.lr=fast": "train.lr: Input should be a valid number, not 'fast'",
    "run data.dataset=cifar10 data.root=nowhere": "nowhere",
    "run partition.clients=3000": "clients must be between 1 and",
    "run policy=magic": "unknown policy 'magic'",
    "runs": "no run directories; make one with `fedeas run`",
    "report {folder}": "not a run directory, config.json is missing",
}


@pytest.mark.parametrize("command", BAD_RUNS)
def test_bad_runs_give_one_line_and_exit_code_2(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*command.format(folder=tmp_path).split())
    assert code == 2
    assert BAD_RUNS[command] in err
    assert len(err.strip().splitlines()) == 1


def test_runs_are_listed_as_json_with_their_state_and_measures(run, tmp_path):
    code, out, _ = run("run", *QUICK, "--json", "--runs", tmp_path)
    assert code == 0
    (made,) = json.loads(out)
    assert (made["state"], made["rounds"], made["seed"]) == ("finished", 2, 0)
    assert 0 <= made["summary"]["accuracy"] <= 1
    code, out, _ = run("runs", "--json", "--runs", tmp_path)
    assert json.loads(out) == [made]


def test_a_run_without_its_config_is_named_and_left_out(run, tmp_path, caplog):
    run("run", *QUICK, "--quiet", "--runs", tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rounds.jsonl").write_text("{}\n")
    _, out, _ = run("runs", "--json", "--runs", tmp_path)
    assert len(json.loads(out)) == 1
    assert "broken" in caplog.text


def test_plans_and_partitions_are_printed_as_json_alone(run, counts_file):
    _, out, _ = run("plan", counts_file, "--total", 20, "--compare", "--json")
    plan = json.loads(out)
    assert plan["synthetic"] <= 20
    assert {each["policy"].partition("(")[0] for each in plan["compared"]} >= {"uniform", "fedeas", "full-balance"}
    _, out, _ = run("plan", counts_file, "--json")
    assert json.loads(out)["clients"] == 2
    _, out, _ = run("partition", "digits", "--clients", 4, "--json")
    split = json.loads(out)
    assert np.array(split["counts"]).shape == (4, 10)


@pytest.mark.parametrize(
    ("typed", "meant"), [(["plna"], "plan"), (["plan", "--compair"], "--compare"), (["bank", "verfy"], "verify")]
)
def test_a_misspelt_command_or_option_is_answered_with_the_right_one(run, typed, meant):
    code, _, err = run(*typed)
    assert code == 2
    assert meant in err


def test_short_help_shows_every_command_in_its_group(run):
    code, out, _ = run("-h")
    assert code == 0
    places = [out.index(name) for name in ("─ Plan ─", "─ Make images ─", "─ Train ─", "─ Compare ─", "─ Distribute ─")]
    assert places == sorted(places)
    assert out.index("│ runs ") > places[3] > out.index("│ run ") > places[2] > out.index("│ weights ")
    assert run("bank", "ls", "-h")[0] == 0


def test_a_tracker_that_is_not_installed_is_named_before_anything_runs(run, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "fedeas.runs.tracking.to_mlflow", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    code, _, err = run("run", *QUICK, "--track", "mlflow", "--runs", tmp_path / "runs")
    assert code == 2
    assert "pip install 'fedeas[mlflow]'" in err
    assert not (tmp_path / "runs").exists()
