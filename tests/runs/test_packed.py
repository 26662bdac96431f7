"""Many finished runs in one file."""

import json
import lzma
from pathlib import Path

import pytest

from fedeas import InputError
from fedeas.core.record_tables import write_table
from fedeas.runs.packed import ENDING, pack, unpack, write_folder
from fedeas.runs.store import RunStore
from reproduction.results import Results

RESULTS = Path(__file__).parents[2] / "reproduction" / "results"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run directories of four finished runs."""
    folder = tmp_path_factory.mktemp("runs")
    for run in unpack(RESULTS / f"digits{ENDING}")[58:62]:  # some generated nothing
        write_folder(run, folder)
    return RunStore(folder).all()


def everything(run):
    return json.dumps([run.config.model_dump(mode="json"), run.summary(), run.environment(), run.generator()])


def test_runs_are_read_back_as_they_were_packed(runs, tmp_path):
    pack(reversed(runs), tmp_path / f"some{ENDING}")
    back = unpack(tmp_path / f"some{ENDING}")
    assert list(map(everything, back)) == list(map(everything, runs))
    assert [json.dumps(run.rounds()) for run in back] == [json.dumps(run.rounds()) for run in runs]
    assert all(run.finished and run.has_rounds for run in back)
    assert len({run.path for run in back}) == len(runs) == 4


def test_rounds_may_be_left_out(runs, tmp_path):
    whole, small, mixed = (tmp_path / f"{name}{ENDING}" for name in ("whole", "small", "mixed"))
    pack(runs, whole)
    pack(runs, small, with_rounds=False)
    assert small.stat().st_size < whole.stat().st_size / 2
    assert list(map(everything, unpack(small))) == list(map(everything, runs))
    with pytest.raises(InputError, match="its rounds were not packed"):
        unpack(small)[0].rounds()
    pack([unpack(small)[0], *unpack(whole)[1:3], unpack(small)[3]], mixed)
    assert [run.has_rounds for run in unpack(mixed)] == [False, True, True, False]
    assert [run.rounds() for run in unpack(mixed)[1:3]] == [run.rounds() for run in runs[1:3]]


def test_a_file_that_was_written_again_is_read_again(runs, tmp_path):
    path = tmp_path / f"some{ENDING}"
    for some in (runs, runs[:1], runs[1:]):
        pack(some, path)
        for _ in range(2):
            assert [run.config for run in unpack(path)] == [run.config for run in some]
            assert [run.rounds() for run in unpack(path)] == [run.rounds() for run in some]


@pytest.mark.parametrize("folder", [".", "beyond"])
def test_results_find_packed_runs_in_a_folder_and_its_subfolders(runs, tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    pack(runs, tmp_path / folder / f"some{ENDING}")
    found = Results([tmp_path])
    assert all(found.has(run.config) for run in runs)


def test_the_same_runs_give_the_same_file(runs, tmp_path):
    for name, some in (("one", runs), ("other", runs[::-1]), ("again", unpack(RESULTS / f"digits{ENDING}")[58:62])):
        pack(some, tmp_path / name)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_the_folder_of_the_data_is_not_packed(runs, tmp_path):
    config = runs[0].config
    somewhere = config.data.model_copy(update={"root": "/home/somebody/data"})
    run = RunStore(tmp_path).open(config.model_copy(update={"data": somewhere}))
    run.write_json("summary.json", runs[0].summary())
    pack([run], tmp_path / f"some{ENDING}", with_rounds=False)
    (back,) = unpack(tmp_path / f"some{ENDING}")
    assert back.config.data.root is None


def test_a_run_whose_rounds_are_damaged_is_not_packed(runs, tmp_path):
    write_folder(runs[0], tmp_path)
    (run,) = RunStore(tmp_path).all()
    (run.path / "rounds.jsonl.gz").unlink()
    with pytest.raises(InputError, match="0 of 60 rounds"):
        pack([run], tmp_path / f"some{ENDING}")
    assert not (tmp_path / f"some{ENDING}").exists()


def as_file(*tables):
    return b"".join(lzma.compress(write_table(table)) for table in tables)


DAMAGED = {
    "empty": b"",
    "no xz": b"no",
    "no table": lzma.compress(b"[1]\n"),
    "half a run": as_file([{"config": {}}]),
    "no config": as_file([dict.fromkeys(["config", "summary", "environment", "generator", "rounds"])]),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_and_left_out_of_results(kind, tmp_path, caplog):
    path = tmp_path / f"some{ENDING}"
    path.write_bytes(DAMAGED[kind])
    with pytest.raises(InputError, match=r"some.runs.xz: damaged \(.*\); restore it from a copy") as raised:
        unpack(path)
    assert "\n" not in str(raised.value)
    Results([tmp_path])
    assert "left out" in caplog.text


@pytest.mark.parametrize("part", ["runs", "rounds"])
@pytest.mark.parametrize("damage", ["cut off", "a byte changed"])
def test_damage_anywhere_is_found(runs, tmp_path, part, damage):
    path, alone = tmp_path / f"some{ENDING}", tmp_path / f"alone{ENDING}"
    pack(runs, path)
    pack(runs, alone, with_rounds=False)  # about as long as the part with the runs
    content = path.read_bytes()
    place = alone.stat().st_size // 2 if part == "runs" else len(content) - 1000
    rest = b"" if damage == "cut off" else bytes([content[place] ^ 1]) + content[place + 1 :]
    path.write_bytes(content[:place] + rest)
    with pytest.raises(InputError, match=r"some.runs.xz: damaged \(.*\); restore it from a copy"):
        [run.rounds() for run in unpack(path)]


def test_missing_rounds_are_found(runs, tmp_path):
    path = tmp_path / f"some{ENDING}"
    pack(runs, path, with_rounds=False)
    content, rounds = {**unpack(path)[0].content, "rounds": 60}, runs[0].rounds()[:59]
    path.write_bytes(as_file([content], rounds))
    with pytest.raises(InputError, match=r"damaged \(59 of 60 rounds are there\)"):
        unpack(path)[0].rounds()
    path.write_bytes(as_file([content], [*rounds, {"round": 59}]))
    with pytest.raises(InputError, match=r"damaged \(line 60 is of round 59\)"):
        unpack(path)[0].rounds()
    path.write_bytes(as_file([content]))
    with pytest.raises(InputError, match=r"damaged \(it ends too early\)"):
        unpack(path)[0].rounds()


def test_a_packed_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / f"some{ENDING}"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be read"):
        unpack(path)
