"""Clients that a dataset brings along, and splits that a file describes."""

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fedeas.config import load_config
from fedeas.core.errors import InputError
from fedeas.data.partition import Partition
from fedeas.data.sources import load_dataset
from fedeas.federation.run import identified
from fedeas.federation.split import split_data, split_of

COUNTS = {"Ulm": {"ant": 10, "bee": 3}, "Köln": {"ant": 1, "cow": 20}}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))


def write_images(base, counts=COUNTS, first=0):
    number = first
    for client, row in counts.items():
        for label, count in row.items():
            (base / client / label).mkdir(parents=True, exist_ok=True)
            for _ in range(count):
                pixels = np.random.default_rng(number).integers(0, 256, (4, 4), dtype=np.uint8)
                Image.fromarray(pixels).save(base / client / label / f"{number}.png")
                number += 1
    return base


def config(base, *overrides):
    return load_config(None, [f"data.dataset=folder:{base}", *overrides])


def split(base, *overrides):
    return split_data(config(base, *overrides), load_dataset(f"folder:{base}"))


def test_client_folders_are_the_clients_of_a_run(tmp_path):
    found = split(write_images(tmp_path / "images"))
    assert found.counts.clients == ("Köln", "Ulm")
    assert found.counts.classes == ("ant", "bee", "cow")
    assert found.counts.n.tolist() == [[1, 0, 16], [8, 2, 0]]
    assert np.bincount(found.test_labels).tolist() == [2, 1, 4]
    assert len(found.notes) == 1


def test_every_image_is_for_training_or_for_testing_and_always_for_the_same(tmp_path):
    base = write_images(tmp_path / "images")
    data, again = load_dataset(f"folder:{base}"), load_dataset(f"folder:{base}")
    assert {*data.sample_names} | {*data.test_names} == {p.relative_to(base).as_posix() for p in base.rglob("*.png")}
    assert not {*data.sample_names} & {*data.test_names}
    assert again.test_names == data.test_names


def test_another_client_does_not_change_what_the_others_test_on(tmp_path):
    base = write_images(tmp_path / "images")
    before = {*load_dataset(f"folder:{base}").test_names}
    write_images(base, {"Aachen": {"bee": 9}}, first=100)
    assert before < {*load_dataset(f"folder:{base}").test_names}


@pytest.mark.parametrize("by_client", [True, False])
def test_a_test_part_is_used_as_it_is(tmp_path, by_client):
    write_images(tmp_path / "images" / "train")
    if by_client:
        write_images(tmp_path / "images" / "test", {"Bonn": {"cow": 4}}, first=100)
    else:
        write_images(tmp_path / "images", {"test": {"cow": 4}}, first=100)
    found = split(tmp_path / "images")
    assert found.counts.n.tolist() == [[1, 0, 20], [10, 3, 0]]
    assert found.test_labels.tolist() == [2] * 4
    assert found.notes == ()


def test_class_folders_without_a_test_part_are_split_by_a_scheme(tmp_path):
    base = write_images(tmp_path, {"images": {"ant": 30, "bee": 20}}) / "images"
    found = split(base, "partition.scheme=iid", "partition.clients=4")
    assert found.counts.n.tolist() == [[6, 4]] * 4
    with pytest.raises(InputError, match="comes without clients"):
        split(base, "partition.scheme=natural")


def test_client_folders_can_be_split_anew(tmp_path):
    found = split(write_images(tmp_path / "images"), "partition.scheme=iid", "partition.clients=3")
    assert found.counts.num_clients == 3


@pytest.mark.parametrize("counts", [{"a": {"x": 1}, "b": {"y": 2}}, {"a": {"x": 9}, "b": {"y": 0}}])
def test_impossible_trees_are_refused(tmp_path, counts):
    with pytest.raises(InputError, match=r"too few images|without images|no images"):
        split(write_images(tmp_path / "images", counts))


@pytest.mark.parametrize("dataset", ["digits", "folder", "npz"])
def test_the_partition_shown_is_the_one_of_the_run(tmp_path, dataset):
    images = np.zeros((60, 4, 4), np.uint8)
    labels = np.arange(60) % 3
    np.savez(tmp_path / "data.npz", images=images, labels=labels, test_images=images[:6], test_labels=labels[:6])
    folder = write_images(tmp_path, {"images": {"ant": 30, "bee": 20}}) / "images"
    name = {"digits": "digits", "folder": f"folder:{folder}", "npz": f"npz:{tmp_path / 'data.npz'}"}[dataset]
    asked = load_config(None, [f"data.dataset={name}", "partition.clients=4", "partition.alpha=1"])
    run = split_data(asked, load_dataset(name))
    for needs_indices in (False, True):
        shown = split_of(asked, needs_indices=needs_indices)
        assert shown.counts == run.counts
        assert shown.test_samples == run.test_labels.size
    assert shown.partition.digest == run.partition.digest


def write_table(path, columns):
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_of_samples_and_clients_is_a_split(tmp_path, ending):
    owners = ["b", "a", "b", "a"] * 300
    path = write_table(tmp_path / f"split{ending}", {"sample": [*range(1200)], "client": owners})
    asked = load_config(None, [f"partition.file={path}"])
    found = split_data(asked, load_dataset("digits"))
    assert found.partition.clients == ("a", "b")
    assert found.partition.indices[0].tolist() == [*range(1, 1200, 2)]
    assert "238 of 1,438" in found.notes[0]
    assert identified(asked).participants == 1


def test_numbers_are_rows_of_the_file_also_if_some_are_set_aside_for_testing(tmp_path):
    """Every image shows its own row, so that a client's images tell which rows it was given."""
    rows = np.arange(60)
    images = np.broadcast_to(rows.astype(np.uint8)[:, None, None, None], (60, 1, 4, 4))
    np.savez(tmp_path / "data.npz", images=images, labels=rows % 3)
    path = write_table(tmp_path / "split.csv", {"sample": rows.tolist(), "client": (rows // 20).tolist()})
    asked = load_config(None, [f"data.dataset=npz:{tmp_path / 'data.npz'}", f"partition.file={path}"])
    found = split_data(asked, load_dataset(asked.data.dataset))
    shown = [found.images[part][:, 0, 0, 0] for part in found.partition.indices]
    assert [set((part // 20).tolist()) for part in shown] == [{0}, {1}, {2}]
    assert sorted([*np.concatenate(shown), *found.test_images[:, 0, 0, 0]]) == rows.tolist()
    assert "12 rows name test images" in found.notes[-1]
    write_table(path, {"sample": [0, 60], "client": ["a", "b"]})
    with pytest.raises(InputError, match="row 2: 60 is no training sample; give samples such as '59'"):
        split_data(asked, load_dataset(asked.data.dataset))


def test_images_are_named_by_their_paths(tmp_path):
    base = write_images(tmp_path, {"images": {"ant": 30, "bee": 20}}) / "images"
    names = [path.relative_to(base).as_posix() for path in sorted(base.rglob("*.png"))]
    path = write_table(tmp_path / "split.csv", {"path": names, "site": [len(name) % 2 for name in names]})
    found = split(base, f"partition.file={path}")
    assert found.counts.total == 40
    assert "10 rows name test images" in found.notes[-1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sample": [0, 1, 0], "client": ["a", "b", "b"]}, "row 3: 0 is in row 1, too"),
        ({"sample": [0, 5000], "client": ["a", "b"]}, "row 2: 5000 is no training sample; give samples such as '1437'"),
        ({"sample": [0, -1], "client": ["a", "b"]}, "row 2: -1 is no training sample"),
        ({"sample": ["x.png"], "client": ["a"]}, "row 1: 'x.png' is no training sample"),
        ({"sample": [0, "x"], "client": ["a", "b"]}, "row 2: 'x' is no training sample; give samples such as '1437'"),
        ({"number": [0, 1], "client": ["a", "b"]}, "rename the sample column"),
        ({"sample": [0, 1], "who": ["a", "b"]}, "rename the client column"),
    ],
)
def test_a_table_that_is_no_split_is_refused(tmp_path, columns, message):
    path = write_table(tmp_path / "split.csv", columns)
    with pytest.raises(InputError, match=message):
        split_data(load_config(None, [f"partition.file={path}"]), load_dataset("digits"))


def test_a_saved_partition_is_the_same_run_wherever_it_lies(tmp_path):
    drawn = split_of(load_config(None, ["partition.clients=5"]), needs_indices=True)
    runs = []
    for name in ("here.npz", "there.npz"):
        drawn.partition.save(tmp_path / name)
        runs.append(identified(load_config(None, [f"partition.file={tmp_path / name}"])))
    assert runs[0].content.partition == drawn.partition.digest
    assert runs[0].partition.clients == 5
    assert runs[0].fingerprint == runs[1].fingerprint
    other = split_of(load_config(None, ["partition.clients=5", "partition.seed=1"]), needs_indices=True)
    other.partition.save(tmp_path / "other.npz")
    assert (
        identified(load_config(None, [f"partition.file={tmp_path / 'other.npz'}"])).fingerprint != runs[0].fingerprint
    )


def test_a_saved_partition_of_other_samples_is_refused(tmp_path):
    paper = load_config(None, ["data.protocol=paper", "partition.scheme=paper", "partition.clients=5"])
    split_of(paper, needs_indices=True).partition.save(tmp_path / "paper.npz")
    with pytest.raises(InputError, match="made for 1,797 other samples"):
        split_data(load_config(None, [f"partition.file={tmp_path / 'paper.npz'}"]), load_dataset("digits"))


def test_letters_in_two_forms_of_unicode_are_one_client_and_one_path(tmp_path):
    one, other = "K\u00f6ln", "Ko\u0308ln"
    base = write_images(tmp_path, {"images": {one: 10, "ant": 5}}) / "images"
    names = [f"{other}/{number}.png" for number in range(10)]
    path = write_table(tmp_path / "split.csv", {"path": names, "client": [one, other] * 5})
    found = split(base, f"partition.file={path}")
    assert found.counts.clients == (one,)
    assert found.counts.total == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": np.array(["a", "a", "b"])}, "damaged"),
        ({"test_sizes": np.array([0])}, "damaged"),
        ({"recipe": np.array("[]")}, "damaged"),
        ({"sizes": np.array([1000, 0, 438])}, "client '1' has no training sample"),
    ],
)
def test_a_saved_partition_that_cannot_be_right_is_refused(tmp_path, change, message):
    path = tmp_path / "split.npz"
    split_of(load_config(None, ["partition.clients=3"]), needs_indices=True).partition.save(path)
    with np.load(path) as file:
        arrays = {**file}
    np.savez(path, **{**arrays, **change})
    with pytest.raises(InputError, match=f"split.npz: {message}"):
        split_data(load_config(None, [f"partition.file={path}"]), load_dataset("digits"))


def test_names_of_clients_are_kept_in_a_saved_partition(tmp_path):
    found = split(write_images(tmp_path / "images")).partition
    found.save(tmp_path / "split.npz")
    again = Partition.load(tmp_path / "split.npz")
    assert again.clients == found.clients
    assert again.counts.clients == ("Köln", "Ulm")


@pytest.mark.parametrize("overrides", [["partition.scheme=file"], ["partition.scheme=iid", "partition.file=x.csv"]])
def test_a_file_goes_with_its_scheme(overrides):
    with pytest.raises(InputError, match="go together"):
        load_config(None, overrides)
