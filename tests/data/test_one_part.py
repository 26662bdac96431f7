"""A client's own data and a server's test set: datasets with one part alone."""

import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fedeas.data.one_part import load_own, load_test_part
from fedeas.data.sources import load_dataset
from fedeas.errors import InputError

CLASSES = ("ant", "bee", "cow")
LABELS = np.array([0, 2, 2, 0, 2])
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 1, 4, 4), dtype=np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))


def write_folder(base, images=IMAGES, labels=LABELS):
    for name in CLASSES:
        (base / name).mkdir(parents=True)
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(pixels[0]).save(base / CLASSES[label] / f"{number}.png")


def write_parquet(path, images=IMAGES, labels=LABELS):
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = []
    for number, pixels in enumerate(images):
        file = path.parent / f"{number}.png"
        Image.fromarray(pixels[0]).save(file)
        stored.append({"bytes": file.read_bytes(), "path": None})
    names = {"info": {"features": {"label": {"_type": "ClassLabel", "names": list(CLASSES)}}}}
    table = pa.table({"image": stored, "label": labels})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(names)}), path)


def npz(base):
    np.savez(base / "mine.npz", images=IMAGES, labels=LABELS, classes=CLASSES)
    return f"npz:{base}/mine.npz"


def folder(base):
    write_folder(base / "mine")
    return f"folder:{base}/mine"


def folder_with_a_test_part(base):
    write_folder(base / "mine" / "train")
    write_folder(base / "mine" / "test", IMAGES[:2], LABELS[:2])
    return f"folder:{base}/mine"


def parquet_file(base):
    write_parquet(base / "mine.parquet")
    return f"parquet:{base}/mine.parquet"


def parquet_folder(base):
    write_parquet(base / "mine" / "train-0.parquet")
    write_parquet(base / "mine" / "test-0.parquet", IMAGES[:2], LABELS[:2])
    return f"parquet:{base}/mine"


OWN = [npz, folder, folder_with_a_test_part, parquet_file, parquet_folder]


@pytest.mark.parametrize("write", OWN, ids=lambda write: write.__name__)
def test_a_clients_own_data_need_no_test_part_and_not_every_class(tmp_path, write):
    data = load_own(write(tmp_path))
    assert data.classes == CLASSES
    order = np.lexsort(data.images.reshape(len(data.images), -1).T)
    expected = np.lexsort(IMAGES.reshape(len(IMAGES), -1).T)
    assert np.array_equal(data.images[order], IMAGES[expected])
    assert data.labels[order].tolist() == LABELS[expected].tolist()
    assert not len(data.test_labels)


def test_a_client_may_have_a_single_image(tmp_path):
    write_folder(tmp_path / "mine", IMAGES[:1], LABELS[:1])
    assert load_own(f"folder:{tmp_path}/mine").labels.tolist() == [0]


def server_npz(base):
    np.savez(base / "test.npz", test_images=IMAGES, test_labels=LABELS, classes=CLASSES)
    return f"npz:{base}/test.npz"


def server_folder(base):
    write_folder(base / "server" / "test")
    return f"folder:{base}/server"


def server_parquet(base):
    write_parquet(base / "server" / "test-0.parquet")
    return f"parquet:{base}/server"


@pytest.mark.parametrize("write", [server_npz, server_folder, server_parquet], ids=lambda write: write.__name__)
def test_a_server_needs_no_training_data(tmp_path, write):
    data = load_test_part(write(tmp_path))
    assert (data.classes, data.shape, len(data.labels)) == (CLASSES, (1, 4, 4), 0)
    assert sorted(data.test_labels.tolist()) == sorted(LABELS.tolist())
    assert (data.channel_mean, data.channel_std) == ((0.5,), (0.5,))
    assert data.digest == load_test_part(data.name).digest
    with pytest.raises(InputError):
        load_dataset(data.name)


def test_the_normalisation_is_part_of_a_server_file_and_of_its_digest(tmp_path):
    found = {}
    for mean in (0.25, 0.3):
        path = tmp_path / f"{mean}.npz"
        np.savez(path, test_images=IMAGES, test_labels=LABELS, classes=CLASSES, mean=[mean], std=[0.125])
        found[mean] = load_test_part(f"npz:{path}")
        assert (found[mean].channel_mean, found[mean].channel_std) == ((mean,), (0.125,))
    assert found[0.25].digest != found[0.3].digest


@pytest.mark.parametrize("wrong", [{"mean": [0.5, 0.5], "std": [0.5]}, {"mean": [0.5], "std": [0.0]}])
def test_a_normalisation_that_cannot_be_used_is_refused(tmp_path, wrong):
    np.savez(tmp_path / "test.npz", test_images=IMAGES, test_labels=LABELS, **wrong)
    with pytest.raises(InputError, match="mean and std must be 1 finite numbers"):
        load_test_part(f"npz:{tmp_path}/test.npz")


def test_of_a_training_part_the_server_keeps_the_normalisation_alone():
    whole, part = load_dataset("digits"), load_test_part("digits")
    assert len(part.images) == 0
    assert np.array_equal(part.test_images, whole.test_images)
    assert (part.channel_mean, part.channel_std) == (whole.channel_mean, whole.channel_std)


@pytest.mark.parametrize(("load", "part"), [(load_own, "test"), (load_own, "validation")])
def test_a_folder_with_the_other_part_alone_is_refused(tmp_path, load, part):
    write_folder(tmp_path / "mine" / part)
    with pytest.raises(InputError, match=f"holds {part} and no folder train"):
        load(f"folder:{tmp_path}/mine")


@pytest.mark.parametrize("names", [("train/0", "test/0"), ("training", "testing"), ("train_0", "test_0")])
def test_parquet_files_that_may_be_of_two_parts_are_refused(tmp_path, names):
    for name in names:
        write_parquet(tmp_path / "mine" / f"{name}.parquet")
    with pytest.raises(InputError, match=r"no Parquet files of a train part; .* train-0\.parquet"):
        load_own(f"parquet:{tmp_path}/mine")


def test_a_single_parquet_file_may_have_any_name(tmp_path):
    write_parquet(tmp_path / "training_2024.parquet")
    assert len(load_own(f"parquet:{tmp_path}/training_2024.parquet").labels) == len(LABELS)


def test_parquet_files_without_images_are_refused(tmp_path):
    write_parquet(tmp_path / "mine.parquet")
    parquet.write_table(parquet.read_table(tmp_path / "mine.parquet")[:0], tmp_path / "mine.parquet")
    with pytest.raises(InputError, match="holds no images"):
        load_own(f"parquet:{tmp_path}/mine.parquet")


@pytest.mark.parametrize("name", ["folder:none", "parquet:none", "npz:none.npz"])
@pytest.mark.parametrize("load", [load_dataset, load_own, load_test_part])
def test_a_place_that_is_not_there_is_one_line(tmp_path, monkeypatch, load, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"none(\.npz)?: no such") as told:
        load(name)
    assert "\n" not in str(told.value)
