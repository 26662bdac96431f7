import json
import multiprocessing

import numpy as np
import pytest

from fedeas import Allocation, InputError, LabelCounts
from fedeas.config import RunConfig, load_config
from fedeas.core.errors import RunError
from fedeas.core.weight_files import write_tensors
from fedeas.runs.store import RunStore, read_run

MEASURES = {
    "accuracy": 0.5, "final": 0.5, "peak": 0.6, "window": [1, 2], "steps": 9, "samples": None, "total": 3,
    "generated": 3, "rounds_to_threshold": None, "gamma_hat": 0.4, "imbalance_removed": 0.1,
    "seconds": {"generate": 1.0, "train": 2, "total": 3.5},
}  # fmt: skip


def test_a_run_directory_is_named_by_its_config_and_read_back(tmp_path):
    config = load_config(None, ["label=mine", "seed=3"])
    run = RunStore(tmp_path).open(config)
    assert run.path.name == f"mine-{config.fingerprint[:8]}"
    assert read_run(run.path).config == config
    assert not run.finished
    run.write_json("summary.json", {"accuracy": 0.5})
    assert RunStore(tmp_path).open(config).finished
    assert run.summary() == {"accuracy": 0.5}


def test_rounds_are_appended_and_a_cut_off_line_is_ignored(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    assert run.rounds() == []
    for number in (1, 2, 3):
        run.append_round({"round": number})
    with (run.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "accur')
    assert [record["round"] for record in run.rounds()] == [1, 2, 3]
    run.keep_rounds(2)
    run.append_round({"round": 3})
    assert [record["round"] for record in run.rounds()] == [1, 2, 3]


def test_half_a_note_of_images_is_dropped_and_the_next_one_is_kept(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    notes = [{"clients": [client], "found": 0, "made": 5} for client in range(3)]
    run.note_images(notes[0])
    run.note_images(notes[1])
    path = run.path / "images.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    run.note_images(notes[2])
    assert run.noted_images() == [notes[0], notes[2]]


def test_a_check_of_a_run_reads_its_notes_of_images(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    (run.path / "images.jsonl").write_text('{"clients": [0\n')
    with pytest.raises(InputError, match=r"images\.jsonl: damaged"):
        run.check()


def test_a_check_of_an_unfinished_run_notices_a_checkpoint_of_another_length(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    write_tensors(run.checkpoint, {"server/a": np.arange(6.0), "server/b": np.ones(3)}, {}, "numpy")
    run.check()
    whole = run.checkpoint.read_bytes()
    for damage in (b"", whole[:5], whole[:20], whole[:-1], whole + b"0", b"\0" * len(whole)):
        run.checkpoint.write_bytes(damage)
        with pytest.raises(InputError, match=r"checkpoint\.safetensors: not a readable .*; remove this file"):
            run.check()
    run.checkpoint.write_bytes(whole)
    run.write_json("summary.json", MEASURES)
    run.check()


def test_the_allocation_is_kept(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    counts, plan = LabelCounts([[5, 0], [1, 2]]), Allocation([[0, 3], [1, 0]], "no-generation")
    run.save_allocation(counts, plan)
    again = run.allocation()
    assert again[0] == counts
    assert np.array_equal(again[1].n, plan.n)


def test_runs_of_other_seeds_and_policies_have_their_own_directories(tmp_path):
    store = RunStore(tmp_path)
    for seed in (0, 1):
        for policy in ("no-generation", "full-balance"):
            store.open(load_config(None, [f"seed={seed}", f"policy={policy}"]))
    assert len(store.all()) == 4


def test_other_folders_are_refused_as_runs(tmp_path):
    with pytest.raises(InputError, match=r"not a run directory, config.json is missing"):
        read_run(tmp_path)
    (tmp_path / "config.json").write_text('{"labl": 3}')
    with pytest.raises(InputError, match="not a config of this version"):
        read_run(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        RunStore(tmp_path / "file").open(RunConfig())
    run = RunStore(tmp_path).open(RunConfig())
    run.append_round({"round": 1})
    (run.path / "summary.json").mkdir()
    with pytest.raises(RunError, match=r"cannot be written .*; rounds recorded so far are kept"):
        run.write_json("summary.json", {})
    (run.path / "summary.json").rmdir()
    assert run.rounds() == [{"round": 1}]


def _hold(path, ready, release):
    with read_run(path).locked():
        ready.set()
        release.wait(30)


def test_two_processes_cannot_work_on_one_run(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(run.path, ready, release))
    other.start()
    assert ready.wait(30)
    with pytest.raises(InputError, match="another process is working on this run"), run.locked():
        pass
    release.set()
    other.join()
    with run.locked():
        pass


def test_a_directory_with_another_or_an_unreadable_run_is_refused(tmp_path):
    store, config = RunStore(tmp_path), RunConfig()
    run = store.open(config)
    (run.path / "config.json").write_text(RunConfig(seed=1).model_dump_json())
    with pytest.raises(InputError, match="holds another run"):
        store.open(config)
    (run.path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json"):
        store.open(config)


@pytest.mark.parametrize("name", ["summary.json", "rounds.jsonl"])
def test_a_damaged_file_is_named(name, tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    (run.path / name).write_text('{"round": 1\n')
    with pytest.raises(InputError, match=f"{name}: damaged"):
        run.summary() if name == "summary.json" else run.rounds()


@pytest.mark.parametrize("lost", ["cut", "emptied", "deleted", "first line", "middle line"])
def test_lost_lines_before_the_checkpoint_are_noticed(tmp_path, lost):
    run = RunStore(tmp_path).open(RunConfig())
    for number in (1, 2, 3, 4):
        run.append_round({"round": number})
    path = run.path / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    left = {
        "cut": [*lines[:2], lines[2][:9]],
        "emptied": [],
        "first line": lines[1:],
        "middle line": lines[:1] + lines[2:],
    }
    path.unlink() if lost == "deleted" else path.write_bytes(b"".join(left[lost]))
    with pytest.raises(InputError, match=r"rounds\.jsonl: damaged .*remove the run's folder"):
        run.keep_rounds(3)


def test_damage_beyond_the_checkpoint_does_not_matter(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    for number in (1, 2):
        run.append_round({"round": number})
    with (run.path / "rounds.jsonl").open("ab") as file:
        file.write(b"\0\0\0\n{")
    run.keep_rounds(2)
    assert run.rounds() == [{"round": 1}, {"round": 2}]


def test_a_finished_run_without_all_its_rounds_is_damaged(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    run.append_round({"round": 1})
    run.write_json("summary.json", {"rounds": 2})
    with pytest.raises(InputError, match=r"rounds\.jsonl: damaged"):
        run.rounds()


def test_damaged_runs_are_left_out_with_a_warning_and_the_others_shown(tmp_path, caplog):
    store = RunStore(tmp_path)
    runs = [store.open(RunConfig(seed=seed)) for seed in range(6)]
    for run, name in zip(
        runs, ["config.json", "env.json", "generator.json", "allocation.npz", "rounds.jsonl"], strict=False
    ):
        (run.path / name).write_bytes(b"{\n")
    (tmp_path / "notes.txt").write_text("stray")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert [run.path for run in store.all()] == [runs[5].path]
    assert len(caplog.messages) == 6 and not any("\n" in message for message in caplog.messages)


def finished(store, seed, summary):
    """A finished run whose summary has no digest, as in earlier versions."""
    run = store.open(RunConfig(seed=seed))
    (run.path / "summary.json").write_text(json.dumps(summary))
    return run


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("value", ["missing", "hi", [], {}, True, float("nan")])
def test_a_run_whose_summary_lacks_a_usable_measure_is_left_out(name, value, tmp_path, caplog):
    store = RunStore(tmp_path)
    good = finished(store, 0, MEASURES)
    rest = {key: own for key, own in MEASURES.items() if key != name}
    bad = finished(store, 1, rest if value == "missing" else {**rest, name: value})
    assert [run.path for run in store.all()] == [good.path]
    assert f"{bad.path / 'summary.json'}: damaged ({name} is " in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy", 2.0), ("accuracy", None), ("peak", -0.1), ("total", -1), ("window", [5, 4])]
)
def test_measures_out_of_range_are_refused(name, value, tmp_path):
    with pytest.raises(InputError, match=rf"summary\.json: damaged \({name} is "):
        finished(RunStore(tmp_path), 0, {**MEASURES, name: value}).check()


def test_a_missing_plan_is_named_with_the_remedy(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    with pytest.raises(InputError, match=r"allocation\.npz: no such file; restore it"):
        run.allocation()
