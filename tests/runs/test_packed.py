"""Many finished runs in one Parquet file."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fedeas import InputError
from fedeas.runs import packed
from fedeas.runs.packed import pack_runs, read_runs, unpack
from fedeas.runs.store import PACKED_RUNS, Run, RunStore
from reproduction.results import Results

RESULTS = Path(__file__).parents[2] / "reproduction" / "results"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run directories of four finished runs."""
    store = RunStore(tmp_path_factory.mktemp("runs"))
    for each in unpack(RESULTS / f"digits{PACKED_RUNS}")[58:62]:  # some generated nothing
        run = store.open(each.config)
        run.write_json("env.json", each.environment())
        if (used := each.generator()) is not None:
            run.write_json("generator.json", used._asdict())
        for record in each.rounds():
            run.append_round(record)
        run.write_json("summary.json", each.summary())
    return store.all()


def everything(run):
    return json.dumps([run.config.model_dump(mode="json"), run.summary(), run.environment(), run.generator()])


def key(run):
    return run.fingerprint, run.method, run.seed, run.content


def test_runs_are_read_back_as_they_were_packed(runs, tmp_path):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(reversed(runs), path)
    back = unpack(path)
    assert list(map(everything, back)) == list(map(everything, runs))
    assert [run.rounds() for run in back] == [run.rounds() for run in runs]
    assert list(map(key, back)) == list(map(key, runs))
    assert all(run.finished and run.has_rounds for run in back)
    assert [run.path for run in back] == [path / run.path.name for run in runs]


@pytest.mark.parametrize("path", sorted(RESULTS.rglob(f"*{PACKED_RUNS}")), ids=lambda path: path.stem)
def test_columns_say_what_config_and_summary_of_each_kept_run_say(path):
    for run in unpack(path):
        config, row = run.config, run.row
        assert key(run) == (config.fingerprint, config.unpinned.method, config.seed, config.content)
        named = {"dataset": config.data.dataset, "protocol": config.data.protocol, "start": config.model.weights}
        named |= {"clients": config.partition.clients, "alpha": config.partition.alpha}
        named |= {name: getattr(config, name) for name in ("label", "policy", "generator", "algorithm")}
        assert {name: row[name] for name in named} == named
        assert row["accuracy"] == run.summary()["accuracy"]


def test_rounds_may_be_left_out(runs, tmp_path):
    whole, small, mixed = (tmp_path / f"{name}{PACKED_RUNS}" for name in ("whole", "small", "mixed"))
    pack_runs(runs, whole)
    pack_runs(runs, small, with_rounds=False)
    assert small.stat().st_size < whole.stat().st_size / 2
    assert list(map(everything, unpack(small))) == list(map(everything, runs))
    with pytest.raises(InputError, match="its rounds were not packed"):
        unpack(small)[0].rounds()
    pack_runs([unpack(small)[0], *unpack(whole)[1:3], unpack(small)[3]], mixed)
    assert [run.has_rounds for run in unpack(mixed)] == [False, True, True, False]
    assert [run.rounds() for run in unpack(mixed)[1:3]] == [run.rounds() for run in runs[1:3]]


def test_runs_that_were_read_stay_as_they_were_when_the_file_is_written_again(runs, tmp_path):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(runs, path)
    before = unpack(path)
    pack_runs(runs[1:], path)
    assert [run.rounds() for run in before] == [run.rounds() for run in runs]
    assert [run.rounds() for run in unpack(path)] == [run.rounds() for run in runs[1:]]


@pytest.mark.parametrize("folder", [".", "beyond"])
def test_results_find_packed_runs_in_a_folder_and_its_subfolders(runs, tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    pack_runs(runs, tmp_path / folder / f"some{PACKED_RUNS}")
    found = Results([tmp_path])
    assert all(found.has(run.config) for run in runs)


def test_the_same_runs_give_the_same_file(runs, tmp_path):
    for name, some in (("one", runs), ("other", runs[::-1])):
        pack_runs(some, tmp_path / name)
    pack_runs(unpack(tmp_path / "one"), tmp_path / "again")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_the_folder_of_the_data_is_not_packed(runs, tmp_path):
    config = runs[0].config
    somewhere = config.data.model_copy(update={"root": "/home/somebody/data"})
    run = RunStore(tmp_path).open(config.model_copy(update={"data": somewhere}))
    run.write_json("summary.json", runs[0].summary())
    pack_runs([run], tmp_path / f"some{PACKED_RUNS}", with_rounds=False)
    (back,) = unpack(tmp_path / f"some{PACKED_RUNS}")
    assert back.config.data.root is None


def test_a_run_whose_rounds_are_damaged_is_not_packed(runs, tmp_path):
    run = RunStore(tmp_path).open(runs[0].config)
    run.write_json("summary.json", runs[0].summary())
    with pytest.raises(InputError, match="0 of 60 rounds"):
        pack_runs([run], tmp_path / f"some{PACKED_RUNS}")
    assert not (tmp_path / f"some{PACKED_RUNS}").exists()


@pytest.mark.parametrize("kind", ["empty", "no Parquet", "no config"])
def test_a_damaged_file_is_refused_and_left_out_of_results(kind, runs, tmp_path, caplog):
    path = tmp_path / f"some{PACKED_RUNS}"
    path.write_bytes(b"" if kind == "empty" else b"no")
    if kind == "no config":
        pack_runs(runs, path)
        parquet.write_table(parquet.read_table(path).drop(["config"]), path)
    with pytest.raises(InputError, match=r"some.parquet: damaged \(.*\); restore it from a copy") as raised:
        unpack(path)
    assert "\n" not in str(raised.value)
    Results([tmp_path])
    assert "left out" in caplog.text


@pytest.mark.parametrize("part", ["fingerprint", "summary", "rounds"])
@pytest.mark.parametrize("damage", ["cut off", "a byte changed"])
def test_damage_anywhere_is_found(runs, tmp_path, part, damage):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(runs, path)
    about, content = parquet.read_metadata(path).row_group(0), path.read_bytes()
    columns = [about.column(number) for number in range(about.num_columns)]
    starts = [column.data_page_offset for column in columns if column.path_in_schema.startswith(part)]
    place = starts[0] + 60  # behind the head of its first page
    rest = b"" if damage == "cut off" else bytes([content[place] ^ 1]) + content[place + 1 :]
    path.write_bytes(content[:place] + rest)
    with pytest.raises(InputError, match=r"some.parquet: damaged \(.*\); restore it from a copy"):
        [run.rounds() for run in unpack(path)]


@pytest.mark.parametrize(
    ("kept", "problem"), [(range(59), "59 of 60 rounds are there"), ([*range(59), 58], "line 60 is of round 59")]
)
def test_missing_rounds_are_found(kept, problem, runs, tmp_path):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(runs, path)
    table = parquet.read_table(path)
    rounds = [[each[number] for number in kept] for each in table["rounds"].to_pylist()]
    parquet.write_table(table.drop(["rounds"]).append_column("rounds", [rounds]), path)
    with pytest.raises(InputError, match=problem):
        unpack(path)[0].rounds()


def test_a_packed_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / f"some{PACKED_RUNS}"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="a symbolic link to nothing"):
        unpack(path)


@given(
    st.sampled_from(["config", "summary", "environment"]),
    st.sampled_from([None, "", "{", "[]", "3", '"text"', '{"label": 3}', '{"digest": "sha256:0"}']),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_damaged_row_is_named_by_whatever_reads_it(runs, tmp_path, column, text):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(runs, path)
    table = parquet.read_table(path)
    cells = [text, *table[column].to_pylist()[1:]]
    parquet.write_table(table.set_column(table.column_names.index(column), column, pa.array(cells, pa.string())), path)
    reads = {"config": lambda run: run.config, "summary": lambda run: run.summary(), "environment": Run.environment}
    damaged, *sound = unpack(path)
    if (column, text) != ("environment", '{"label": 3}'):  # an environment may have any keys
        with pytest.raises(InputError, match=rf"{re.escape(str(damaged.path))}.*damaged") as raised:
            reads[column](damaged)
        assert "\n" not in str(raised.value)
    assert [reads[column](run) for run in sound] == [reads[column](run) for run in runs[1:]]


@pytest.mark.parametrize("name", ["config.json", "summary.json", "env.json", "generator.json", "rounds.jsonl"])
def test_a_run_with_half_of_any_file_cut_off_is_left_out_of_results_by_name(runs, tmp_path, name, caplog):
    shutil.copytree(runs[1].path.parent, tmp_path / "runs")
    path = tmp_path / "runs" / runs[1].path.name / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert {run.path.name for run in read_runs(tmp_path / "runs")} == {run.path.name for run in runs} - {
        path.parent.name
    }
    assert [str(path) in message for message in caplog.messages] == [True]


SIZES = st.integers(1, 2**22)


@given(kind=st.sampled_from(["blanks", "one text in many rows", "no values", "many rounds"]), size=SIZES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_a_packed_file_that_would_take_more_memory_than_its_limit_is_refused(runs, tmp_path, kind, size):
    path, limit = tmp_path / f"some{PACKED_RUNS}", 2**19
    pack_runs(runs[:1], path)
    one = parquet.read_table(path).drop(["rounds"])
    rows = 1 if kind in ("blanks", "many rounds") else min(size, 1 + size // 2**9)
    table = pa.concat_tables([one] * rows).combine_chunks()
    texts = {"blanks": " " * size, "one text in many rows": "x" * 2**9}
    if kind in texts:
        repeated = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [texts[kind]])
        table = table.set_column(table.column_names.index("summary"), "summary", repeated)
    cell = pa.array([[{"round": 0.0}] * (size // 2**5)] if kind == "many rounds" else [None] * rows)
    parquet.write_table(table.append_column("rounds", cell), path, compression="zstd", store_schema=False)
    written_out = parquet.read_table(path).nbytes  # by pyarrow alone
    refusal = None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FREE": limit, "PER_BYTE": 1, "MOST_OF_A_RUN": limit}.items():
            patch.setattr(packed, name, value)
        try:
            assert all(run.has_rounds == (kind == "many rounds") for run in unpack(path))
        except InputError as error:
            refusal = str(error)
    if written_out > 2 * max(limit, path.stat().st_size):
        assert "bytes would become" in refusal
    elif 4 * written_out < limit:
        assert refusal is None


def test_a_record_that_unpacks_to_megabytes_of_blanks_is_refused(runs, tmp_path):
    path = tmp_path / f"some{PACKED_RUNS}"
    pack_runs(runs[:1], path)
    table = parquet.read_table(path)
    blanks = pa.array(['{"accuracy": 1' + " " * packed.LONGEST_TEXT + "}"])
    parquet.write_table(table.set_column(table.column_names.index("summary"), "summary", blanks), path)
    with pytest.raises(InputError, match=r"summary: [\d,]+ characters"):
        unpack(path)[0].summary()
