"""Cells filled from run directories. Runs with the paper's own numbers must give the paper's tables."""

import csv
import json
from decimal import Decimal
from io import StringIO

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedeas import FedEAS, InputError
from fedeas.config import ContentConfig
from fedeas.core.weight_files import weights_digest, write_tensors
from fedeas.runs import pack_runs, read_runs
from fedeas.runs.comparison import Difference, Measured, Verdict
from reproduction.artefacts import (
    ARTEFACTS,
    ablation_sheet,
    accuracy_sheets,
    convergence_sheet,
    gamma_sheet,
    measures_sheet,
    peak_sheet,
    references_sheet,
    setting_sheets,
    sweep_sheet,
    wall_clock_sheet,
)
from reproduction.methods import FEDAVG, FEDEAS, GREEDY, METHODS, MISSING_ONLY, Method, with_total
from reproduction.published import EXAMPLE, published, setting
from reproduction.reproduction import Places
from reproduction.results import Results
from reproduction.studies import study, with_seeds
from reproduction.tables import comma_separated, fill, markdown

FULL = study("full")
HERE = setting(EXAMPLE)
ACCURACY, DIFFERENCE = 1, 2  # columns of `references`


def at_all_seeds(finished, values):
    """Finished runs of these methods, one for each value, in the setting of `references`."""
    for method, accuracies in values.items():
        configs = with_seeds(FULL.config(setting("c10-k100-a0.1"), method), len(accuracies))
        for config, accuracy in zip(configs, accuracies, strict=True):
            finished(config, accuracy=accuracy)


def table(sheet, folder):
    return fill(sheet(FULL), Results([folder]))


def accuracy_sheet(chosen):
    """The main table alone, without that of another start."""
    return accuracy_sheets(chosen)[0]


def entries(filled):
    return [entry for row in filled.rows.values() for entry in row if entry is not None]


def agrees(entry):
    """Whether our number, rounded to the paper's digits, equals the paper's."""
    return (
        abs(Decimal(entry.ours.mean) - entry.paper)
        <= Decimal("0.5000001") * Decimal(10) ** entry.paper.as_tuple().exponent
    )


@pytest.mark.parametrize(("sheet", "key"), [(accuracy_sheet, "accuracy"), (peak_sheet, "peak")])
def test_every_printed_cell_of_the_main_tables_has_its_run(sheet, key, finished, tmp_path):
    printed = getattr(published(), key)
    for name, method in METHODS.items():
        for where, number in zip(published().settings, printed[name], strict=True):
            if number is not None:
                finished(FULL.config(where, method), **{key: float(number) / 100})
    filled = table(sheet, tmp_path)
    assert len(entries(filled)) == sum(number is not None for row in printed.values() for number in row)
    for entry in entries(filled):
        assert entry.ours.mean == pytest.approx(float(entry.paper))
        assert entry.difference.lstrip("+−") == "0.00"


def test_the_sweeps_gains_and_efficiencies_follow_from_the_printed_accuracies(finished, tmp_path):
    sweep = published().beta_sweep
    finished(FULL.config(HERE, FEDAVG), accuracy=float(sweep.fedavg) / 100)
    finished(FULL.config(HERE, METHODS["full-balance"]), accuracy=float(sweep.full_balance) / 100)
    for beta, own, even in zip(sweep.beta, sweep.fedeas, sweep.uniform, strict=True):
        budget = FedEAS(float(beta)).spec
        finished(FULL.config(HERE, Method("own", policy=budget)), accuracy=float(own) / 100)
        finished(FULL.config(HERE, Method("even", policy=with_total("uniform", budget))), accuracy=float(even) / 100)
    found = entries(table(sweep_sheet, tmp_path))
    assert len(found) == 5 * 7 + 4 + 1
    assert all(agrees(entry) for entry in found)


def test_the_ablation_has_the_printed_totals(finished, tmp_path):
    for config in next(each for each in ARTEFACTS if each.name == "table2").configs(FULL):
        finished(config)
    totals = [row[0] for row in table(ablation_sheet, tmp_path).rows.values()]
    assert [entry.ours.mean for entry in totals] == [float(entry.paper) for entry in totals] == [8673, 10337, 10198]


def test_reductions_of_gamma_hat_follow_from_the_printed_medians(finished, tmp_path):
    for name, median in published().gamma_hat.median.items():
        finished(FULL.config(HERE, METHODS[name]), gamma_hat=float(median))
    reductions = [row[1] for row in table(gamma_sheet, tmp_path).rows.values() if row[1] is not None]
    assert len(reductions) == 3
    assert all(agrees(entry) for entry in reductions)


def test_a_threshold_that_was_not_reached_differs_from_a_missing_run(finished, tmp_path):
    finished(FULL.config(HERE, FEDEAS))
    rows = table(convergence_sheet, tmp_path).rows
    assert [entry.number for entry in rows["FedEAS"]] == ["not reached", "not run"]


def test_a_threshold_that_some_seeds_missed_has_no_mean_over_the_others(finished, tmp_path):
    for config, reached in zip(with_seeds(FULL.config(HERE, FEDEAS), 3), (59, None, None), strict=True):
        finished(config, rounds_to_threshold=reached)
    entry = table(convergence_sheet, tmp_path).rows["FedEAS"][0]
    assert (entry.number, entry.difference) == ("not reached by 2 of 3 seeds", "")


def test_different_weights_with_one_name_are_noted(finished, tmp_path):
    where = setting("c10-k100-a0.1")
    for method, fingerprint in ((FEDEAS, "a"), (MISSING_ONLY, "a"), (FEDAVG, None)):
        run = finished(FULL.config(where, method))
        if fingerprint is not None:
            run.write_json("generator.json", {"fingerprint": fingerprint, "description": "", "spec": "diffusion"})
    assert "Not all runs" not in table(references_sheet, tmp_path).remarks
    run.write_json("generator.json", {"fingerprint": "b", "description": "", "spec": "diffusion"})
    assert "the same diffusion" in table(references_sheet, tmp_path).remarks


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Initial weights with the name that the study's full profile uses."""
    file = tmp_path / "weights" / f"{FULL.config(HERE, FEDAVG).model.weights}.safetensors"
    file.parent.mkdir()
    save_file({"weight": np.ones(1, np.float32)}, file)
    monkeypatch.setenv("FEDEAS_WEIGHTS", str(file.parent))
    return file


def with_start(config, digest):
    return config.model_copy(update={"content": ContentConfig(weights=digest)})


def test_runs_with_other_weights_than_todays_do_not_count(finished, tmp_path, start):
    config = FULL.config(setting("c10-k100-a0.1"), FEDAVG)
    finished(with_start(config, "0" * 64))
    assert not Results([tmp_path]).has(config)
    finished(with_start(config, weights_digest(start)))
    assert Results([tmp_path]).has(config)


def test_packed_runs_count_whatever_weights_are_here(finished, tmp_path, start):
    config = FULL.config(setting("c10-k100-a0.1"), FEDAVG)
    pack_runs([finished(with_start(config, "0" * 64))], tmp_path / "some.parquet", with_rounds=False)
    for _ in range(2):
        assert Results([tmp_path / "some.parquet"]).has(config)
        start.unlink(missing_ok=True)


def test_different_images_with_one_name_are_noted(finished, tmp_path):
    where = setting("c10-k100-a0.1")
    for method, digest in ((FEDEAS, "a"), (FEDAVG, "b")):
        finished(FULL.config(where, method).model_copy(update={"content": ContentConfig(data=digest * 64)}))
    assert "the same cifar10" in table(references_sheet, tmp_path).remarks


def test_differences_to_fedeas_are_paired_by_seed_and_have_an_interval(finished, tmp_path):
    values = {FEDEAS: (0.5, 0.6, 0.7), MISSING_ONLY: (0.45, 0.53, 0.64), GREEDY: (0.4, 0.8)}
    at_all_seeds(finished, values)
    apart = {name: row[DIFFERENCE] for name, row in table(references_sheet, tmp_path).rows.items()}
    assert apart["FedEAS"] is None
    assert apart["Missing-only"].number == "−6.00"
    assert apart["Missing-only"].ours.interval == pytest.approx((-6 - 2.484138, -6 + 2.484138), abs=1e-5)  # t = 4.3027
    assert apart["Missing-only"].ours.verdict is Verdict.LOWER
    assert (apart["Greedy"].ours.seeds, apart["Greedy"].ours.verdict) == (2, Verdict.UNDECIDED)
    assert apart["Uniform"].number == "not run"


def test_with_one_seed_a_difference_has_no_interval_and_nothing_is_marked(finished, tmp_path):
    at_all_seeds(finished, {FEDEAS: (0.9,), MISSING_ONLY: (0.4,), GREEDY: (0.2,)})
    filled = table(references_sheet, tmp_path)
    assert filled.rows["Missing-only"][DIFFERENCE].ours == Difference(pytest.approx(-50), None, 1)
    assert not any(entry.rank or entry.interval for entry in entries(filled))
    assert "interval" in filled.remarks


def test_the_columns_name_the_rounds_that_accuracy_covers():
    columns = {name: references_sheet(study(name)).columns[ACCURACY] for name in ("full", "digits", "smoke")}
    assert columns == {"full": "rounds 181-200, %", "digits": "rounds 55-60, %", "smoke": "round 3, %"}


def test_work_that_was_not_recorded_says_so(finished, tmp_path):
    at_all_seeds(finished, {FEDEAS: (0.5, 0.6)})
    assert [entry.number for entry in table(references_sheet, tmp_path).rows["FedEAS"][-2:]] == [
        "1,200",
        "not recorded",
    ]


def test_all_formats_show_the_final_accuracy_with_that_of_the_window(finished, tmp_path):
    for config, last in zip(with_seeds(FULL.config(HERE, FEDEAS), 2), (0.51, 0.53), strict=True):
        finished(config, accuracy=0.5, final=last)
    filled = table(accuracy_sheet, tmp_path)
    (entry,) = [entry for entry in entries(filled) if entry.ours]
    assert entry.final == Measured(pytest.approx(52), pytest.approx(2**0.5), 2)
    assert "final 52.00 ± 1.41" in markdown(filled)
    (row,) = [row for row in csv.DictReader(StringIO(comma_separated(filled))) if row["ours"]]
    assert float(row["final"]) == pytest.approx(52)


def test_numbers_from_counts_need_no_runs(tmp_path):
    filled = table(references_sheet, tmp_path)
    removed = {name: row[0] for name, row in filled.rows.items()}
    assert removed["FedEAS"].number == "74.8"
    assert not any(entry.rank for entry in entries(filled))
    totals = [row[0] for row in table(sweep_sheet, tmp_path).rows.values() if row[0] is not None]
    assert all(entry.ours.mean == float(entry.paper) for entry in totals)


def test_times_are_given_only_for_runs_that_generated_all_their_images(finished, tmp_path):
    finished(FULL.config(HERE, FEDEAS), images={"found": 0, "made": 5}, seconds={"total": 120.0})
    finished(FULL.config(HERE, METHODS["full-balance"]), images={"found": 5, "made": 0})
    numbers = [row[0].number for row in table(wall_clock_sheet, tmp_path).rows.values()]
    assert numbers == ["2.0", "images reused", "images reused"]


def test_without_runs_no_cell_that_needs_one_has_a_number(tmp_path):
    for artefact in ARTEFACTS:
        for sheet in artefact.sheets(FULL):
            filled = fill(sheet, Results([tmp_path / "nowhere"]))
            trained = [entry for entry in entries(filled) if entry.ours is None or entry.ours.seeds]
            assert all(entry.number == "not run" and not entry.difference for entry in trained)
            assert trained
            for render in (markdown, comma_separated):
                assert render(filled)


def test_numbers_over_seeds_are_mean_and_deviation_and_pair_the_same_seeds(finished, tmp_path):
    own, base = with_seeds(FULL.config(HERE, FEDEAS), 3), with_seeds(FULL.config(HERE, FEDAVG), 3)
    for seed, (high, low) in enumerate([(0.6, 0.5), (0.8, 0.5), (0.9, None)]):
        finished(own[seed], accuracy=high)
        if low is not None:
            finished(base[seed], accuracy=low)
    row = table(sweep_sheet, tmp_path).rows["FedEAS, beta = 12"]
    assert row[1].ours == Measured(pytest.approx(230 / 3), pytest.approx(15.2752523), 3)
    assert row[2].ours == Difference(pytest.approx(20), pytest.approx(14.1421356), 2)  # only the seeds that both have


def test_the_best_and_the_second_are_marked_among_ranked_rows_only(finished, tmp_path):
    levels = {"fedavg": 0.4, "missing-only": 0.6, "fedeas": 0.7, "full-balance": 0.9}
    for place, (name, accuracy) in enumerate(levels.items()):
        for config, step in zip(with_seeds(FULL.config(HERE, METHODS[name]), 3), (-0.01, 0, 0.01), strict=True):
            finished(config, accuracy=accuracy + step * (1 + place / 10))
    filled = table(accuracy_sheet, tmp_path)
    column = filled.columns.index(HERE.title)
    marks = {name: row[column].rank for name, row in filled.rows.items() if row[column] is not None}
    assert {name: rank for name, rank in marks.items() if rank} == {"FedEAS": 1, "Missing-only": 2}
    assert "**70.00** ± 1.20" in markdown(filled)
    assert "<u>60.00</u>" in markdown(filled)


def test_methods_without_a_clear_difference_are_not_marked(finished, tmp_path):
    at_all_seeds(finished, {FEDEAS: (0.70, 0.75, 0.72), MISSING_ONLY: (0.71, 0.70, 0.73), GREEDY: (0.3, 0.31, 0.32)})
    assert not any(entry.rank for entry in entries(table(references_sheet, tmp_path)))


def test_a_single_result_is_not_called_the_best(finished, tmp_path):
    finished(FULL.config(HERE, FEDEAS))
    assert not any(entry.rank for entry in entries(table(accuracy_sheet, tmp_path)))


def test_the_number_of_seeds_is_given_once_if_equal_and_else_in_each_cell(finished, tmp_path):
    for config in with_seeds(FULL.config(HERE, FEDEAS), 2):
        finished(config)
    alike = markdown(table(accuracy_sheet, tmp_path))
    assert "n = 2 seeds" in alike
    assert "n=2" not in alike
    finished(FULL.config(HERE, MISSING_ONLY))
    unlike = markdown(table(accuracy_sheet, tmp_path))
    assert "n=2" in unlike
    assert "n=1" in unlike


def test_in_tables_by_method_a_column_has_the_seeds_and_pairs_with_fewer_say_so(finished, tmp_path):
    at_all_seeds(finished, {FEDEAS: (0.7, 0.71), GREEDY: (0.7, 0.72, 0.73), MISSING_ONLY: (0.6,)})
    filled = table(references_sheet, tmp_path)
    assert filled.heads[0] == "n"
    counted = {name: seeds for name, seeds, *_ in filled.written()}
    assert {name: seeds for name, seeds in counted.items() if seeds != "0"} == {
        "FedEAS": "2",
        "Greedy": "3",
        "Missing-only": "1",
    }
    lines = {line.split(" | ")[0].strip("| "): line for line in markdown(filled).splitlines() if " | " in line}
    assert "n=2" in lines["Greedy"]  # the seeds that FedEAS has, too
    assert "n=" not in lines["FedEAS"] + lines["Missing-only"]


def test_peaks_are_separate_from_the_accuracy_that_is_compared():
    assert not any("peak" in column for column in references_sheet(FULL).columns)
    assert "peak, %" in measures_sheet(FULL).columns
    assert not measures_sheet(FULL).ranked


def test_each_setting_has_a_table_with_work_and_with_differences_to_fedeas(finished, tmp_path):
    for method, accuracies in ((FEDEAS, (0.7, 0.72)), (FEDAVG, (0.5, 0.55))):
        for config, accuracy in zip(with_seeds(FULL.config(HERE, method), 2), accuracies, strict=True):
            finished(config, accuracy=accuracy, steps=1000 + 100 * config.seed, samples=64000)
    filled = {sheet.title: fill(sheet, Results([tmp_path])) for sheet in setting_sheets(FULL)}
    assert len(filled) == 8
    (own,) = [each for each in filled.values() if each.seeds]
    assert HERE.title in own.title
    numbers = dict(zip(own.columns, own.rows["FedAvg"], strict=True))
    assert numbers["minus FedEAS, points"].ours == Difference(pytest.approx(-18.5), pytest.approx(1.5 * 2**0.5), 2)
    assert (numbers["steps"].ours.mean, numbers["images seen"].ours.mean) == (1050, 64000)
    assert "Full-Balance" in own.rows  # the paper has it here
    assert sum("Full-Balance" in each.rows for each in filled.values()) == 4


@pytest.mark.parametrize("content", [b'{"accuracy": ', b"\xff\xfe", b"[1]", None], ids=["cut", "bytes", "list", "null"])
def test_a_damaged_summary_is_left_out_and_the_others_are_not(finished, tmp_path, caplog, content):
    where = setting("c10-k100-a0.1")
    run = finished(FULL.config(where, MISSING_ONLY), accuracy=None)
    if content is not None:
        (run.path / "summary.json").write_bytes(content)
    finished(FULL.config(where, FEDEAS))
    numbers = {name: row[ACCURACY].number for name, row in table(references_sheet, tmp_path).rows.items()}
    assert (numbers["FedEAS"], numbers["Missing-only"]) == ("50.00", "not run")
    assert "left out" in caplog.text


def test_runs_in_subfolders_are_found_but_not_those_beside_images(finished, tmp_path):
    for place, method in (("digits", FEDEAS), (".banks", MISSING_ONLY)):
        run = finished(FULL.config(setting("c10-k100-a0.1"), method))
        (tmp_path / place).mkdir()
        run.path.rename(tmp_path / place / run.path.name)
    numbers = {name: row[ACCURACY].number for name, row in table(references_sheet, tmp_path).rows.items()}
    assert (numbers["FedEAS"], numbers["Missing-only"]) == ("50.00", "not run")


def test_the_papers_number_is_inside_or_outside_the_interval_of_our_mean(finished, tmp_path):
    printed = published().printed("fedeas", HERE)
    for method, shift in ((FEDEAS, 0.1), (FEDAVG, 9.0)):
        level = float(published().printed(method.name, HERE)) + shift
        for config, step in zip(with_seeds(FULL.config(HERE, method), 3), (-0.2, 0.0, 0.2), strict=True):
            finished(config, accuracy=(level + step) / 100)
    finished(FULL.config(HERE, MISSING_ONLY))
    filled = table(accuracy_sheet, tmp_path)
    column = filled.columns.index(HERE.title)
    places = {name: filled.rows[name][column].place for name in ("FedEAS", "FedAvg", "Missing-only", "Uniform")}
    low, high = float(printed) + 0.1 - 0.496828, float(printed) + 0.1 + 0.496828  # t = 4.3027
    assert places["FedEAS"] == f"inside {low:.2f} to {high:.2f}"
    assert places["FedAvg"].startswith("outside ")
    assert places["Missing-only"] == places["Uniform"] == ""  # one seed, and none
    assert places["FedEAS"] in markdown(filled)


def test_beside_the_main_table_stands_another_start_of_which_no_run_is_made(finished, tmp_path):
    main, other = accuracy_sheets(FULL)
    weights = [{run.model.weights for cell in sheet.cells for run in cell.configs} for sheet in (main, other)]
    assert weights == [{"imagenet"}, {"cifar100-imagenet-stem", "cifar10-imagenet-stem"}]
    (needed,) = ({run.model.weights for run in each.configs(FULL)} for each in ARTEFACTS if each.name == "table1")
    assert needed == {"imagenet"}
    finished(study("full", start="cifar100-imagenet-stem").config(HERE, FEDEAS), accuracy=0.7)
    filled = [fill(sheet, Results([tmp_path])) for sheet in (main, other)]
    assert [sum(entry.ours is not None for entry in entries(each)) for each in filled] == [0, 1]
    assert len(accuracy_sheets(study("full", start="scratch"))) == 1


def test_csv_has_every_cell_with_unrounded_numbers(finished, tmp_path):
    finished(FULL.config(HERE, FEDEAS), accuracy=0.123456789)
    filled = table(accuracy_sheet, tmp_path)
    rows = list(csv.DictReader(StringIO(comma_separated(filled))))
    assert len(rows) == len(entries(filled))
    (run,) = [row for row in rows if row["ours"]]
    assert float(run["ours"]) == 12.3456789
    assert (run["row"], run["column"], run["paper"]) == ("FedEAS", HERE.title, "71.65")
    assert float(run["difference"]) == pytest.approx(12.3456789 - 71.65)


def test_kept_results_are_small_name_no_folder_and_are_found_under_any_name(finished, tmp_path):
    config = FULL.config(HERE, FEDEAS)
    elsewhere = config.data.model_copy(update={"root": "/home/somebody/data"})
    run = finished(config.model_copy(update={"label": "mine", "data": elsewhere}), accuracy=0.7)
    write_tensors(run.checkpoint, {"x": np.random.default_rng(0).random(10_000)}, {}, "numpy")
    (tmp_path / "results").mkdir()
    Places(tmp_path, tmp_path / "results", keeps=True).keep([config], Results([tmp_path]))
    (kept,) = (tmp_path / "results").iterdir()
    assert kept.stat().st_size < 20_000
    (back,) = read_runs(kept)
    assert back.config.data.root is None
    assert back.summary() == run.summary()
    kept.rename(tmp_path / "results" / "another-name.parquet")
    assert Results([tmp_path / "results"]).has(config)


def test_only_finished_runs_of_this_version_count(finished, tmp_path):
    run = finished(FULL.config(HERE, FEDEAS))
    (run.path / "summary.json").unlink()
    assert not Results([tmp_path]).has(run.config)
    with pytest.raises(InputError, match="not finished"):
        pack_runs([run], tmp_path / "some.parquet")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "config.json").write_text(json.dumps({"colour": "green"}))
    (strange / "summary.json").write_text("{}")
    assert not Results([tmp_path]).has(run.config)


@pytest.mark.parametrize("content", ["{", "{}", "[1, 2]"])
def test_a_damaged_summary_is_left_out_and_logged(content, finished, tmp_path, caplog):
    good, bad = finished(FULL.config(HERE, FEDEAS)), finished(FULL.config(HERE, FEDAVG))
    (bad.path / "summary.json").write_text(content)
    found = Results([tmp_path])
    assert found.has(good.config)
    assert not found.has(bad.config)
    assert str(bad.path) in caplog.text


def test_a_method_that_was_not_run_says_so_once_and_keeps_the_papers_numbers(finished, tmp_path):
    at_all_seeds(finished, {FEDEAS: (0.7,)})
    filled = table(references_sheet, tmp_path)
    shown = [entry for entry in filled.shown("Uniform") if entry is not None and entry.ours is None]
    assert [entry.printed for entry in shown] == ["58.81"]
    assert markdown(filled).count("not run") == len(filled.rows) - 1
    measures = table(measures_sheet, tmp_path)
    assert [entry.printed for entry in measures.shown("Missing-only") if entry] == ["71.46", "100"]
    statuses = [row["status"] for row in csv.DictReader(StringIO(comma_separated(filled))) if row["row"] == "Uniform"]
    assert statuses.count("not run") == 5  # a file for machines says it of each cell
