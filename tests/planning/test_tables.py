import csv
import io
import os
import subprocess
import sys
import tracemalloc
from datetime import date
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from strategies import label_counts

from fedeas import Allocation, FedEAS, InputError, LabelCounts, read_counts, write_allocation, write_counts
from fedeas.core.foreign_text import for_csv
from fedeas.planning import arrow_tables
from fedeas.planning.columns import ColumnNames
from fedeas.planning.request import plan_in_parts, write_plan
from fedeas.planning.tables import Chunk, CountTable, read_allocation, write_parts

NAMED = LabelCounts([[5, 0], [3, 4], [0, 9]], clients=["ann", "b,ob", 'c"y'], classes=["cat", "do,g"])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_counts_survive_a_round_trip_with_their_names(tmp_path, ending):
    write_counts(tmp_path / f"counts.{ending}", NAMED)
    assert read_counts(tmp_path / f"counts.{ending}") == NAMED


def test_an_array_is_read_without_pyarrow(tmp_path):
    np.save(tmp_path / "counts.npy", NAMED.n)
    script = "import sys, fedeas; fedeas.read_counts(sys.argv[1]); sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script, tmp_path / "counts.npy"]).returncode == 0


@given(counts=label_counts())
def test_csv_is_lossless(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("csv") / "counts.csv"
    write_counts(path, counts)
    assert np.array_equal(read_counts(path).n, counts.n)


LOOKS_LIKE_SOMETHING_ELSE = st.sampled_from(
    ["007", "7", "7.0", "+7", "1.10", "1.1", "1e3", "1000", "NA", "nan", "null", "#N/A", "true", "True", "2024-01-01"]
)
NAMES = st.lists(
    LOOKS_LIKE_SOMETHING_ELSE | st.text("07.+-eNanul", min_size=1, max_size=4), min_size=2, max_size=5, unique=True
)


@given(names=NAMES)
def test_names_in_a_csv_file_are_kept_as_they_are_written(tmp_path_factory, names):
    counts = LabelCounts([[row, 1] for row in range(len(names))], clients=names, classes=["cat", "dog"])
    folder = tmp_path_factory.mktemp("csv")
    write_counts(folder / "counts.csv", counts)
    assert read_counts(folder / "counts.csv") == counts
    write_allocation(folder / "plan.csv", counts, Allocation(counts.n, "", names, ["cat", "dog"]))
    assert read_allocation(folder / "plan.csv").clients == counts.clients


@given(names=NAMES, labels=NAMES)
def test_names_in_rows_of_samples_are_kept_as_they_are_written(tmp_path_factory, names, labels):
    path = tmp_path_factory.mktemp("csv") / "samples.csv"
    rows = list(product(names, labels))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("client", "label"), *((for_csv(name), for_csv(label)) for name, label in rows)])
    counts = read_counts(path)
    assert {*counts.clients} == {*names}
    assert {*counts.classes} == {*labels}
    assert (counts.n == 1).all()


def test_an_empty_name_is_missing(tmp_path):
    (tmp_path / "counts.csv").write_text("client,cat,dog\nNA,1,2\n,3,4\n")
    with pytest.raises(InputError, match="row 2: missing client name"):
        read_counts(tmp_path / "counts.csv")


def test_npy_is_read(tmp_path):
    np.save(tmp_path / "counts.npy", np.array([[1, 2], [3, 4]], dtype=np.uint16))
    assert read_counts(tmp_path / "counts.npy") == LabelCounts([[1, 2], [3, 4]])


def test_a_client_column_is_optional(tmp_path):
    (tmp_path / "counts.csv").write_text("cat,dog\n1,2\n3,4\n")
    assert read_counts(tmp_path / "counts.csv") == LabelCounts([[1, 2], [3, 4]], classes=["cat", "dog"])


def test_rows_of_samples_are_tallied(tmp_path):
    rows = [(2, "dog"), (1, "cat"), (10, "cat"), (2, "dog"), (2, "cat")]
    (tmp_path / "samples.csv").write_text("client,label\n" + "".join(f"{c},{label}\n" for c, label in rows))
    counts = read_counts(tmp_path / "samples.csv")
    assert counts == LabelCounts([[1, 0], [1, 2], [1, 0]], clients=["1", "2", "10"], classes=["cat", "dog"])
    parquet.write_table(
        pa.table({"path": ["x"] * 5, "label": [r[1] for r in rows], "client": [r[0] for r in rows]}),
        tmp_path / "samples.parquet",
    )
    assert read_counts(tmp_path / "samples.parquet") == counts


def test_classes_without_samples_are_added_by_their_number(tmp_path):
    (tmp_path / "samples.csv").write_text("client,label\na,0\na,3\nb,1\n")
    assert read_counts(tmp_path / "samples.csv", num_classes=5).n.tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]]
    with pytest.raises(InputError, match="labels are not all whole numbers from 0 to 2"):
        read_counts(tmp_path / "samples.csv", num_classes=3)


@pytest.mark.parametrize("classes", [-1, 0, 1])
def test_an_impossible_number_of_classes_is_refused(tmp_path, classes):
    (tmp_path / "samples.csv").write_text("client,label\na,0\n")
    with pytest.raises(InputError, match=f"the number of classes must be at least 2, not {classes}"):
        read_counts(tmp_path / "samples.csv", num_classes=classes)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, float("nan")], "row 2: missing"),
        (["a", None], "row 2: missing"),
        ([[1], [2]], "of type list"),
        ([{"a": 1}, {"a": 2}], "of type struct"),
        ([b"a", b"b"], "of type binary"),
    ],
)
def test_names_and_labels_are_neither_missing_nor_nested(tmp_path, column, message):
    path = tmp_path / "odd.parquet"
    for table in (
        {"client": column, "label": ["x", "y"]},
        {"client": ["a", "b"], "label": column},
        {"client": column, "x": [1, 2], "y": [3, 4]},
    ):
        parquet.write_table(pa.table(table), path)
        for read in (read_counts, lambda path: list(CountTable(path).chunks())):
            with pytest.raises(InputError, match=message):
                read(path)


def test_an_allocation_is_written_in_both_formats(tmp_path):
    plan = FedEAS(4).allocate(NAMED)
    for ending in ("csv", "parquet"):
        write_allocation(tmp_path / f"plan.{ending}", NAMED, plan)
    with (tmp_path / "plan.csv").open(newline="") as file:
        assert list(csv.reader(file))[:2] == [["client", "cat", "do,g"], ["ann", *map(str, plan.n[0])]]
    table = parquet.read_table(tmp_path / "plan.parquet")
    assert table.schema.metadata[b"fedeas.policy"] == b"fedeas(beta=4)"
    assert table.column("do,g").to_pylist() == plan.n[:, 1].tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_a_number_of_classes_is_refused_for_a_table_that_shows_them(tmp_path, ending):
    path = tmp_path / f"counts.{ending}"
    np.save(path, NAMED.n) if ending == "npy" else write_counts(path, NAMED)
    with pytest.raises(InputError, match="leave the number of classes out"):
        read_counts(path, num_classes=2)


@pytest.mark.parametrize(
    ("text", "remarks"),
    [("0,1,2\n5,6,7\n", True), ("1,2,3\n5,6,7\n", True), ("a,b,c\n5,6,7\n", False), ("client,0,1\nx,5,6\n", False)],
)
def test_a_header_that_may_be_a_client_is_pointed_out(tmp_path, text, remarks):
    (tmp_path / "counts.csv").write_text(text)
    table = CountTable(tmp_path / "counts.csv")
    assert table.counts().n.tolist() in ([[5, 6, 7]], [[5, 6]])
    assert ("add a row with the names of the classes" in table.how) == remarks


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_clients_that_are_dates_are_written_in_every_format(tmp_path, ending):
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    parquet.write_table(pa.table({"client": days, "cat": [5, 0], "dog": [1, 7]}), tmp_path / "counts.parquet")
    parts = plan_in_parts(CountTable(tmp_path / "counts.parquet"), FedEAS(4))
    write_plan(parts, "fedeas(beta=4)", tmp_path / f"plan.{ending}")
    assert read_allocation(tmp_path / f"plan.{ending}").client_names == ("2026-01-01", "2026-01-02")


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_parts_add_up_to_the_whole(tmp_path, kind):
    n = np.random.default_rng(0).integers(0, 30, (1000, 5)) + np.eye(5, dtype=int)[0]
    path = tmp_path / f"counts.{kind}"
    if kind == "npy":
        np.save(path, n)
    else:
        write_counts(path, LabelCounts(n))
    parts = list(CountTable(path).chunks(cells=600))
    assert len(parts) > 5
    assert [part.first_row for part in parts] == list(np.cumsum([0] + [len(part.counts) for part in parts[:-1]]))
    assert np.array_equal(np.concatenate([part.counts.n for part in parts]), n)


def write_parquet(path, clients, n):
    columns = {"client": clients} | {f"c{j}": column for j, column in enumerate(np.asarray(n).T)}
    parquet.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    "names", [["a", "b", "c", "d", "e", "b"], ["a", "b", "c", "d", "e", " b "], [5, 3, 1, 2, 9, 3]]
)
def test_a_client_that_appears_twice_far_apart_is_noticed(tmp_path, names):
    write_parquet(tmp_path / "twice.parquet", names, np.ones((6, 2), dtype=int))
    with pytest.raises(InputError, match=rf"duplicate client '{names[1]}' \(rows 2 and 6\); merge or rename one"):
        list(CountTable(tmp_path / "twice.parquet").chunks(cells=6))


def test_different_names_with_equal_hashes_are_not_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_tables, "hash", lambda name: 0, raising=False)
    write_parquet(tmp_path / "fine.parquet", ["a", "b", "c"], np.ones((3, 2), dtype=int))
    assert len(list(CountTable(tmp_path / "fine.parquet").chunks(cells=3))) == 3


def test_an_error_in_a_later_part_names_the_row_of_the_file(tmp_path):
    n = np.ones((50, 2), dtype=int)
    n[41, 1] = -7
    write_parquet(tmp_path / "late.parquet", [f"client-{k}" for k in range(50)], n)
    message = r"late.parquet: row 42 \(client 'client-41'\), class 'c1': negative count -7; give 0 or more"
    with pytest.raises(InputError, match=message):
        list(CountTable(tmp_path / "late.parquet").chunks(cells=30))
    np.save(tmp_path / "late.npy", n)
    with pytest.raises(InputError, match=r"late.npy: row 42, class '1': negative count -7"):
        list(CountTable(tmp_path / "late.npy").chunks(cells=30))


BAD_CSV = {
    "client,x,y\na,1,-2\n": "row 1 (client 'a'), class 'y': negative count -2; give 0 or more",
    "client,x,y\na,1,2\nb,1,2.5\n": "row 2 (client 'b'), class 'y': fractional count 2.5; give whole numbers",
    "client,x,y\na,1,\nb,1,2\n": "row 1 (client 'a'), class 'y': missing count; write 0 for none",
    "client,x,y\na,1,\nb,1,\n": "row 1 (client 'a'), class 'y': missing count; write 0 for none",
    "client,x,y\na,1,nan\n": "row 1 (client 'a'), class 'y': missing count; write 0 for none",
    "client,x,y\na,1,2\nb,1,many\n": "row 2 (client 'b'), class 'y': 'many' is not a count; give a whole number",
    "client,x,y\na,0,0\n": "row 1 (client 'a'): client with no samples; remove the row",
    "client,x,y\na,1,2\na,3,4\n": "duplicate client 'a' (rows 1 and 2); merge or rename one",
    "client,x,y\n,1,2\n": "row 1: missing client name; give one",
    "client,x,x\na,1,2\n": "has two columns named 'x'; rename one (is the header row missing?)",
    "client,Client,x\na,1,2\n": "has 2 client columns (client, Client); keep one",
    "client,x\na,1\n": "the table has 1 class; give at least two",
    "client\na\n": "has no class columns; give one column of counts for each class",
    "client,x,y\n": "the table of counts is empty; give at least one client",
    "": "is empty; give a header",
    "\n\n \n": "is empty; give a header",
    "client,x,y\na,1\n": "row 1 has 2 cells, the header 3",
    "client;x;y\na;1;2\nb;1\n": "row 2 has 2 cells, the header 3",
    'client,x,y\n"a,1,2\nb,3,4\n': "row 1 has 1 cell, the header 3 (is a quotation mark not closed?)",
    "client,x,y\na,1,99999999999999999999999\n":
    "row 1 (client 'a'), class 'y': count 1e+23 is too large; give at most 2,147,483,647",
    "client,x,y\na,true,false\n": "column 'x' holds text, not counts; remove it",
    "client,label\na,\n": "row 1: missing label; give one",
    "client,label\n": "the table of counts is empty",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_CSV)
def test_bad_files_are_refused_with_their_name_and_row(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_counts(path)
    assert str(caught.value).startswith(f"{path}: {BAD_CSV[text]}")
    assert "\n" not in str(caught.value)


LATIN = "client,café,naïve\njosé,3,4\nzoë,1,2\n"


@pytest.mark.parametrize(
    "content",
    [
        LATIN.encode(),
        LATIN.encode("utf-8-sig"),
        LATIN.encode("latin-1"),
        LATIN.encode("utf-16"),
        LATIN.replace(",", ";").encode(),
        LATIN.replace(",", ";").encode("latin-1"),
        LATIN.replace(",", "\t").encode("utf-16"),
        LATIN.replace("\n", "\r\n").encode("utf-8-sig"),
        LATIN.replace("josé", '"josé"').replace(",", ";").encode(),
    ],
)
def test_text_is_read_in_the_usual_encodings_and_separators(tmp_path, content):
    (tmp_path / "counts.csv").write_bytes(content)
    expected = LabelCounts([[3, 4], [1, 2]], clients=["josé", "zoë"], classes=["café", "naïve"])
    assert read_counts(tmp_path / "counts.csv") == expected


def test_a_separator_inside_names_is_not_taken_for_one(tmp_path):
    (tmp_path / "counts.csv").write_text('client,x;;;;,"y;;,;"\na,3,4\nb;;,1,2\n')
    assert read_counts(tmp_path / "counts.csv").clients == ("a", "b;;")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\x81\x8d\x8f,\n1,2\n", b"\xff\xfe\x00"])
def test_a_file_that_is_not_text_is_refused(tmp_path, content):
    (tmp_path / "binary.csv").write_bytes(content)
    with pytest.raises(InputError, match="not a text file; save the table as CSV in UTF-8"):
        read_counts(tmp_path / "binary.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_pipes_and_devices_are_not_opened(tmp_path, ending):
    os.mkfifo(tmp_path / f"pipe.{ending}")
    (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        for read in (read_counts, lambda path: list(CountTable(path).chunks())):
            with pytest.raises(InputError, match="a pipe or a device; give a regular file"):
                read(tmp_path / f"{name}.{ending}")


POOLS = []  # arrays may live longer than the test, and need the pool that they came from


def allocated(call):
    """Peak bytes of Python and numpy, and of Arrow."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1], counted.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def long_names(path, rows, length, wide):
    names = pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array(["x" * length]))
    numbers = {"a": np.ones(rows, dtype=np.int8), "b": np.ones(rows, dtype=np.int8)}
    table = pa.table({"client": names, **(numbers if wide else {"label": names})})
    parquet.write_table(table.replace_schema_metadata(None), path, compression="zstd", store_schema=False)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("length", [900, 4000])
def test_long_names_that_repeat_take_the_room_of_one(tmp_path, wide, length):
    long_names(tmp_path / "bomb.parquet", 300_000, length, wide)
    assert (tmp_path / "bomb.parquet").stat().st_size < 300_000
    for read in (read_counts, lambda path: list(CountTable(path).chunks())):

        def refused(read=read):
            with pytest.raises(InputError, match=r"duplicate client|characters; give at most 1,000|has 1 class"):
                read(tmp_path / "bomb.parquet")

        assert max(allocated(refused)) < 100e6  # written out the names are 270 MB, or more


def test_a_small_file_that_describes_a_huge_table_is_refused(tmp_path):
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    with parquet.ParquetWriter(tmp_path / "huge.parquet", schema) as writer:
        part = pa.table({"a": np.ones(3_000_000, dtype=int), "b": np.ones(3_000_000, dtype=int)})
        for _ in range(4):
            writer.write_table(part)
    with pytest.raises(InputError, match="24,000,000 counts, far more than it can hold"):
        read_counts(tmp_path / "huge.parquet")


@pytest.mark.parametrize("classes", [10**9, 10**11, 10**18])
def test_a_number_of_classes_far_beyond_the_samples_is_refused(tmp_path, classes):
    (tmp_path / "samples.csv").write_text("client,label\na,0\nb,1\n")
    with pytest.raises(InputError, match="counts, far more than it can hold"):
        read_counts(tmp_path / "samples.csv", num_classes=classes)


def test_clients_times_labels_far_beyond_the_samples_are_refused(tmp_path):
    (tmp_path / "samples.csv").write_text("client,label\n" + "".join(f"{i},{i}\n" for i in range(5000)))
    with pytest.raises(InputError, match="25,000,000 counts, far more than it can hold"):
        read_counts(tmp_path / "samples.csv")


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "fake.parquet").write_text("not parquet")
    (tmp_path / "cut.parquet").write_text("PAR1 and no more")
    (tmp_path / "fake.npy").write_text("not an array")
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.arange(3))
    for name, message in {
        "none.csv": "no such file",
        "none.parquet": "no such file",
        "fake.parquet": r"is not a Parquet file; if it is CSV, let its name end in \.csv",
        "cut.parquet": "cannot be read",
        "fake.npy": "cannot be read",
        "objects.npy": "cannot be read",
        "flat.npy": "counts must be a table",
        "counts.xlsx": "cannot tell the format from '.xlsx'; use .csv, .parquet, .npy",
    }.items():
        for read in (read_counts, lambda path: list(CountTable(path).chunks())):
            with pytest.raises(InputError, match=message):
                read(tmp_path / name)


def test_an_empty_parquet_file_is_refused(tmp_path):
    write_parquet(tmp_path / "empty.parquet", pa.array([], pa.string()), np.ones((0, 2), dtype=int))
    for read in (read_counts, lambda path: list(CountTable(path).chunks())):
        with pytest.raises(InputError, match="empty"):
            read(tmp_path / "empty.parquet")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, ending):
    path = tmp_path / f"plan.{ending}"
    path.write_text("precious")

    def parts():
        yield Chunk(NAMED, NAMED.clients, 0), Allocation(NAMED.n)
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_parts(path, "fedeas", parts())
    assert path.read_text() == "precious"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist; create it first"):
        write_counts(tmp_path / "nowhere" / "counts.csv", NAMED)


HOSPITALS = LabelCounts([[30, 4], [3, 44], [5, 6]], ["101", "102", "103"], ["cat", "dog"])
SAME_TABLE = {
    "numeric id column": "site,cat,dog\n101,30,4\n102,3,44\n103,5,6\n",
    "index of pandas": ",site,cat,dog\n0,101,30,4\n1,102,3,44\n2,103,5,6\n",
    "index of pandas, read and written": "Unnamed: 0,Hospital ID,cat,dog\n0,101,30,4\n1,102,3,44\n2,103,5,6\n",
    "sum of the row": "client,cat,dog,Total\n101,30,4,34\n102,3,44,47\n103,5,6,11\n",
    "blanks around names": " client , cat,dog \n101,30,4\n102,3,44\n103,5,6\n",
    "counts with a point": "client,cat,dog\n101,30.0,4.00\n102,3.,44.0000\n103,5,6.0\n",
    "tidy, blanks": "site,label,n\n101, cat,30\n101,dog,4\n102,cat,3\n102,dog,44\n103,cat ,5\n103,dog ,6\n",
    "tidy": "client,label,count\n101,cat,30\n101,dog,4\n102,cat,3\n102,dog,44\n103,cat,5\n103,dog,6\n",
    "tidy, short name": "n;class;site\n30;cat;101\n4;dog;101\n3;cat;102\n44;dog;102\n5;cat;103\n6;dog;103\n",
    "one row a sample": "label\tpath\tuser_id\n"
    + "".join(f"{what}\tx.png\t{who}\n" for who, row in zip((101, 102, 103), ((30, 4), (3, 44), (5, 6)), strict=True)
              for what, times in zip(("cat", "dog"), row, strict=True) for _ in range(times)),
}  # fmt: skip


@pytest.mark.parametrize("text", SAME_TABLE.values(), ids=SAME_TABLE)
def test_the_usual_shapes_of_a_table_give_the_same_counts(tmp_path, text):
    (tmp_path / "counts.csv").write_text(text)
    assert read_counts(tmp_path / "counts.csv") == HOSPITALS
    frame = pd.read_csv(tmp_path / "counts.csv", sep=None, engine="python")
    assert LabelCounts(frame) == HOSPITALS
    frame.to_parquet(tmp_path / "counts.parquet")
    assert read_counts(tmp_path / "counts.parquet") == HOSPITALS
    (whole,) = CountTable(tmp_path / "counts.parquet").chunks()
    assert np.array_equal(whole.counts.n, HOSPITALS.n)


AMBIGUOUS = {
    "krankenhaus,cat,dog\n1,3,4\n2,5,6\n3,7,8\n": "--client-column krankenhaus",
    "client,site,cat,dog\na,1,3,4\nb,2,5,6\n": "choose with --client-column",
    "befund,krankenhaus,count\nx,a,3\ny,a,4\n": "give --client-column, --label-column, --count-column",
    "client,label,anzahl\na,x,3\na,y,4\nb,x,5\nb,y,6\n": "--count-column anzahl",
    "client,label,count\na,x,3\na,x,4\nb,y,5\n": "--count-column count",
    "client,label,count,n\na,x,3,1\nb,y,5,1\n": "--count-column",
    "client,city,cat,dog\na,Bonn,1,2\nb,Kiel,3,4\n": "column 'city' holds text",
    "hospital,path\na,1.png\na,2.png\nb,3.png\n": "give --client-column, --label-column, --count-column",
    "client,cat,dog,total\na,1,2,3\nb,3,4,8\n": "column 'total' is not the sum",
    "client,cat,dog\na,1,2\nb,3,4\nTotal,4,6\n": "row 3: 'Total' is the sum of the rows above",
    "hospital;cat;dog\nUlm;10;80\nBonn;1.000;300\n": "row 2, column 'cat': 1.000",
    "client,label,count\na,x,3\nb,y,12.500\n": "row 2, column 'count': 12.500",
    "Ulm,900,80\nBonn,10,300\n": "--client-column Ulm",
    "900,80\n10,300\n": "add a column 'client'",
    "client,cat,dog\na,1,2\nb,3,4,5\nc,3,4\n": "row 2 has 4 cells, the header 3",
}


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_table_that_can_be_read_in_two_ways_is_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_counts(tmp_path / "counts.csv")
    assert AMBIGUOUS[text] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("krankenhaus,cat,dog\n1,3,4\n2,5,6\n3,7,8\n", {"krankenhaus": "client"}),
        ("befund,krankenhaus,count\nx,a,3\ny,a,4\n", {"befund": "label", "krankenhaus": "client"}),
        ("client,label,anzahl\na,x,3\na,y,4\nb,x,5\nb,y,6\n", {"anzahl": "count"}),
        ("hospital,path\na,x\na,y\nb,x\n", {"path": "label"}),
    ],
)
def test_a_frame_that_can_be_read_in_two_ways_is_read_once_its_columns_have_the_names_of_the_error(text, names):
    frame = pd.read_csv(io.StringIO(text))
    with pytest.raises(InputError) as caught:
        LabelCounts(frame)
    assert all(repr(name) in str(caught.value) for name in names.values())
    assert LabelCounts(frame.rename(columns=names)).num_classes == 2


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("krankenhaus,cat,dog\n1,3,4\n2,5,6\n3,7,8\n", ColumnNames(client="krankenhaus")),
        ("befund,krankenhaus,anzahl\ncat,1,3\ndog,1,4\ncat,2,5\ndog,2,6\ncat,3,7\ndog,3,8\n",
         ColumnNames("krankenhaus", "befund", "anzahl")),
        ("client,label,count\n1,cat,1\n1,cat,2\n1,dog,4\n2,cat,5\n2,dog,6\n3,cat,7\n3,dog,8\n",
         ColumnNames(count="count")),
    ],
)  # fmt: skip
def test_columns_can_be_named(tmp_path, text, columns):
    (tmp_path / "counts.csv").write_text(text)
    expected = LabelCounts([[3, 4], [5, 6], [7, 8]], ["1", "2", "3"], ["cat", "dog"])
    assert read_counts(tmp_path / "counts.csv", columns=columns) == expected


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (ColumnNames(client="nobody"), "no column 'nobody'; there are 'client', 'label', 'count'"),
        (ColumnNames(label="label", count="label"), "cannot be two of"),
    ],
)
def test_named_columns_are_checked(tmp_path, columns, message):
    (tmp_path / "counts.csv").write_text("client,label,count\na,x,1\nb,y,2\n")
    with pytest.raises(InputError, match=message):
        read_counts(tmp_path / "counts.csv", columns=columns)


@pytest.mark.parametrize(
    ("count", "message"),
    [("-1", "row 2, column 'count': negative count -1"), ("0.5", "row 2, column 'count': fractional"),
     ("", "row 2, column 'count': missing"), ("many", "row 2, .*'many' is not a count"),
     ("3e14", "too large; give at most 2,147,483,647")],
)  # fmt: skip
def test_a_bad_count_of_a_tidy_table_is_refused_with_its_row(tmp_path, count, message):
    (tmp_path / "counts.csv").write_text(f"client,label,count\na,x,1\nb,y,{count}\n")
    with pytest.raises(InputError, match=message):
        read_counts(tmp_path / "counts.csv")


def test_answers_yes_and_no_are_classes(tmp_path):
    (tmp_path / "counts.csv").write_text("client,y,n\na,1,2\nb,3,4\n")
    assert read_counts(tmp_path / "counts.csv").classes == ("y", "n")


@pytest.mark.parametrize("text", ["site,1,2,3\na,5,6,7\n", "x,1,2\na,5,6\n", "x,1.0,0.0\na,5,6\n", "2,0,1\n5,6,7\n"])
def test_classes_may_be_numbers(tmp_path, text):
    (tmp_path / "counts.csv").write_text(text)
    assert read_counts(tmp_path / "counts.csv").num_clients == 1


@pytest.mark.parametrize("table", [{"a": {"x": 1, "y": 2}, " a": {"x": 1}}, [{"x": 1, "y": 2}, {"x ": 1}]])
def test_names_that_differ_only_in_blanks_around_them_are_one_name(table):
    with pytest.raises(InputError, match="duplicate"):
        LabelCounts(table)


COLOGNE = ("K\u00f6ln", "Ko\u0308ln")
"""One name, written with one letter and with a letter and an accent."""


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("wide", [True, False])
def test_both_forms_of_an_accent_are_one_name_in_every_table(tmp_path, ending, wide):
    def read(name):
        frame = pd.DataFrame({"client": [name, "b"], name: [1, 2], "x": [3, 4]})
        frame = frame if wide else frame.melt("client", var_name="label", value_name="count")
        path = tmp_path / f"counts.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return read_counts(path), LabelCounts(frame)

    read = [counts for name in COLOGNE for counts in read(name)]
    assert all(counts == read[0] for counts in read)
    plan = FedEAS(beta=1).allocate(read[0])
    assert [plan.row_of(name) for name in COLOGNE] == [plan.clients.index(COLOGNE[0])] * 2


def test_a_client_in_both_forms_of_an_accent_is_there_twice(tmp_path):
    (tmp_path / "counts.csv").write_text("client,x,y\n{},1,2\n{},3,4\n".format(*COLOGNE))
    with pytest.raises(InputError, match="rows 1 and 2"):
        read_counts(tmp_path / "counts.csv")


def test_a_plan_whose_points_may_separate_thousands_is_refused(tmp_path):
    (tmp_path / "plan.csv").write_text("client;cat;dog\na;1.000;2\n")
    with pytest.raises(InputError, match=r"plan\.csv: row 1, column 'cat': 1\.000"):
        read_allocation(tmp_path / "plan.csv")


def test_too_little_memory_is_not_an_unreadable_file(tmp_path, monkeypatch):
    def fail(*arguments):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    write_counts(tmp_path / "counts.parquet", LabelCounts([[1, 2]]))
    monkeypatch.setattr(arrow_tables.ParquetFile, "read", fail)
    with pytest.raises(MemoryError, match="malloc"):
        read_counts(tmp_path / "counts.parquet")


class Compared(str):
    """A name that counts how often it is compared with another."""

    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.times += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("first", ["1", "0.5"])
def test_the_work_of_reading_a_table_grows_with_its_columns_not_with_their_square(tmp_path, first):
    compared = []
    for columns in (100, 400):
        names = [Compared(f"c{place}") for place in range(columns)]
        path = tmp_path / f"{columns}.csv"
        path.write_text("\n".join(",".join(row) for row in (names, [first] * columns, ["2"] * columns)))
        Compared.times = 0
        arrow_tables.CsvFile(path).read([], tuple(names))
        compared.append(Compared.times)
    assert compared[1] <= 4 * compared[0]


@given(count=st.integers(0, 2**31 - 1), form=st.sampled_from(["{:#x}", "{:#X}", "+{:#x}", " {:#x}", "{:#o}", "{:#b}"]))
@example(count=16, form="{:#x}")
def test_a_count_that_is_not_decimal_is_refused(tmp_path_factory, count, form):
    path, text = tmp_path_factory.mktemp("csv") / "counts.csv", form.format(count)
    path.write_text(f"client,cat,dog\na,1,2\nb,{text},3\n")
    with pytest.raises(InputError, match=r"row 2 \(client 'b'\), class 'cat': .* is not a count"):
        read_counts(path)
    path.write_text(f"client,label\na,{text}\nb,dog\n")
    assert {*read_counts(path).classes} == {text.strip(), "dog"}


@given(encodings=st.lists(st.sampled_from(["utf-8", "latin-1"]), min_size=2, max_size=6), end=st.sampled_from("\n\r"))
def test_text_in_two_encodings_is_refused_with_the_line(tmp_path_factory, encodings, end):
    path = tmp_path_factory.mktemp("csv") / "counts.csv"
    names = [f"zo\N{LATIN SMALL LETTER E WITH DIAERESIS}{row}" for row in range(len(encodings))]
    lines = [f"{name},1,2{end}".encode(encoding) for name, encoding in zip(names, encodings, strict=True)]
    path.write_bytes(b"".join([f"client,cat,dog{end}".encode(), *lines]))
    if len({*encodings}) == 1:
        assert read_counts(path).clients == tuple(names)
    else:
        with pytest.raises(InputError, match=f"line {2 + encodings.index('latin-1')} "):
            read_counts(path)


@given(kind=st.sampled_from(["long names", "one name in many rows", "lists"]), size=st.integers(1, 2**17))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_the_first_values_of_a_parquet_column_are_few_and_short_or_the_file_is_refused(tmp_path, kind, size):
    path, limit = tmp_path / "a.parquet", 2**16
    column = {
        "long names": pa.array(["x" * size, "y"]),
        "one name in many rows": pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int32()), ["x" * (size // 50)]),
        "lists": pa.array([[0] * size]),
    }[kind]
    table = pa.table({"mystery": column, "cat": [1] * len(column)})
    parquet.write_table(table, path, compression="zstd", store_schema=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_tables, "FREE_BYTES", limit)
        patch.setattr(arrow_tables, "BYTES_PER_BYTE", 1)
        try:
            head = arrow_tables.ParquetFile(path).head("mystery")
        except InputError as error:
            assert "bytes would become" in str(error)
        else:
            assert parquet.read_metadata(path).row_group(0).total_byte_size <= 2 * max(limit, path.stat().st_size)
            assert all(len(value) <= arrow_tables.MAX_NAME_LENGTH for value in head)
