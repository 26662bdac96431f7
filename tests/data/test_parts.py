"""A client's own data and a server's test set: datasets with one part alone."""

import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fedeas.core.errors import InputError
from fedeas.data.sources import as_in_run, load_dataset, load_own, load_test_part, misleading_label

CLASSES = ("ant", "bee", "cow")
LABELS = np.array([0, 2, 2, 0, 2])
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 1, 4, 4), dtype=np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))


def write_folder(base, images=IMAGES, labels=LABELS, classes=CLASSES):
    for name in classes:
        (base / name).mkdir(parents=True)
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(pixels[0]).save(base / classes[label] / f"{number}.png")


def write_parquet(path, images=IMAGES, labels=LABELS, classes=CLASSES):
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = []
    for number, pixels in enumerate(images):
        file = path.parent / f"{number}.png"
        Image.fromarray(pixels[0]).save(file)
        stored.append({"bytes": file.read_bytes(), "path": None})
    names = {"info": {"features": {"label": {"_type": "ClassLabel", "names": list(classes)}}}}
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


# ---- the classes and channels of a run


def named_npz(base, classes):
    np.savez(base / "mine.npz", images=IMAGES, labels=LABELS, classes=classes)
    return f"npz:{base}/mine.npz"


def named_folder(base, classes):
    write_folder(base / "mine", classes=classes)
    return f"folder:{base}/mine"


def named_parquet(base, classes):
    write_parquet(base / "mine.parquet", classes=classes)
    return f"parquet:{base}/mine.parquet"


NAMED = [named_npz, named_folder, named_parquet]


@pytest.mark.parametrize("write", NAMED, ids=lambda write: write.__name__)
@pytest.mark.parametrize("run", [("1", "2", "3", "0"), ("0", "1", "10", "2", "3"), ("fox", "3", "2", "1")])
def test_an_image_keeps_the_name_of_its_class_in_a_run_also_if_it_is_a_number(tmp_path, write, run):
    own = load_own(write(tmp_path, ("1", "2", "3")))
    found = as_in_run(own, run, own.shape)
    assert found.classes == run
    assert [run[label] for label in found.labels] == [own.classes[label] for label in own.labels]


@pytest.mark.parametrize("write", NAMED, ids=lambda write: write.__name__)
@pytest.mark.parametrize("run", [("1", "2", "3", "4", "5"), ("cat", "dog", "fox")])
def test_a_name_that_a_run_does_not_have_is_refused_also_if_it_is_a_number(tmp_path, write, run):
    own = load_own(write(tmp_path, ("0", "1", "2")))
    with pytest.raises(InputError, match=r"class 0.* is not one of the run's classes"):
        as_in_run(own, run, own.shape)


def nameless_npz(base):
    np.savez(base / "mine.npz", images=IMAGES, labels=LABELS)
    return f"npz:{base}/mine.npz"


def nameless_parquet(base):
    write_parquet(base / "mine.parquet", classes=())
    return f"parquet:{base}/mine.parquet"


@pytest.fixture
def nameless_code(tmp_path, monkeypatch):
    """A function of the client's that gives arrays without names of classes."""
    np.savez(tmp_path / "arrays.npz", images=IMAGES, labels=LABELS // 2, test_images=IMAGES, test_labels=LABELS // 2)
    code = f"import numpy\n\ndef load():\n    return dict(numpy.load({str(tmp_path / 'arrays.npz')!r}))\n"
    (tmp_path / "own_images_without_names.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "python:own_images_without_names:load"


NAMELESS = [nameless_npz, nameless_parquet]


@pytest.mark.parametrize("write", NAMELESS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("run", [("0", "1", "10", "2"), ("cat", "dog", "fox")])
def test_labels_without_names_are_places_in_the_runs_order_of_classes(tmp_path, write, run):
    own = load_own(write(tmp_path))
    assert as_in_run(own, run, own.shape).labels.tolist() == LABELS.tolist()


def test_labels_of_own_code_without_names_are_places_too(nameless_code):
    own = load_own(nameless_code)
    assert as_in_run(own, ("cat", "dog"), own.shape).labels.tolist() == (LABELS // 2).tolist()


@pytest.mark.parametrize("write", NAMELESS, ids=lambda write: write.__name__)
def test_a_label_beyond_the_runs_classes_is_refused_with_their_range(tmp_path, write):
    own = load_own(write(tmp_path))
    with pytest.raises(InputError, match="class 2 is not one of the run's classes"):
        as_in_run(own, ("cat", "dog"), own.shape)


@pytest.mark.parametrize(
    ("classes", "label"),
    [(tuple(map(str, range(10))), None), (("1", "2"), 1), (tuple(sorted(map(str, range(12)))), 2), (CLASSES, None)],
)
def test_a_label_misleads_if_its_number_is_the_name_of_another_class(classes, label):
    assert misleading_label(classes) == label


def test_grey_images_of_a_client_are_repeated_in_each_channel_of_a_colour_run(tmp_path):
    own = load_own(npz(tmp_path))
    found = as_in_run(own, CLASSES, (3, 4, 4))
    assert found.shape == (3, 4, 4)
    assert all(np.array_equal(found.images[:, [channel]], own.images) for channel in range(3))


@pytest.mark.parametrize(("mine", "run"), [((1, 4, 4), (1, 8, 4)), ((3, 4, 4), (1, 4, 4))])
def test_images_that_do_not_fit_a_run_are_refused_with_the_remedy(tmp_path, mine, run):
    np.savez(tmp_path / "mine.npz", images=np.zeros((5, *mine), np.uint8), labels=LABELS)
    with pytest.raises(InputError, match="resize or convert them"):
        as_in_run(load_own(f"npz:{tmp_path}/mine.npz"), CLASSES, run)


# ---- a server's test set


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
    with pytest.raises(InputError, match=r"no train split; .* train-00000-of-00001\.parquet"):
        load_own(f"parquet:{tmp_path}/mine")


def test_a_single_parquet_file_may_have_any_name(tmp_path):
    write_parquet(tmp_path / "training_2024.parquet")
    assert len(load_own(f"parquet:{tmp_path}/training_2024.parquet").labels) == len(LABELS)


def test_parquet_files_without_images_are_refused(tmp_path):
    write_parquet(tmp_path / "mine.parquet")
    parquet.write_table(parquet.read_table(tmp_path / "mine.parquet")[:0], tmp_path / "mine.parquet")
    with pytest.raises(InputError, match=r"mine\.parquet: the training part is empty"):
        load_own(f"parquet:{tmp_path}/mine.parquet")


@pytest.mark.parametrize("name", ["folder:none", "parquet:none", "npz:none.npz"])
@pytest.mark.parametrize("load", [load_dataset, load_own, load_test_part])
def test_a_place_that_is_not_there_is_one_line(tmp_path, monkeypatch, load, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"none(\.npz)?: no such") as told:
        load(name)
    assert "\n" not in str(told.value)
