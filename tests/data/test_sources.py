import io
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedeas import InputError
from fedeas.core.files import temporary
from fedeas.core.foreign_text import in_one_form
from fedeas.core.records import check_unpacked
from fedeas.data import cache as cache_module
from fedeas.data import parquet as parquet_module
from fedeas.data.cache import MOST_PIXELS, decode
from fedeas.data.names import KNOWN
from fedeas.data.sources import load_dataset, load_own

CLASSES = ("ant", "bee", "cow")


def pictures(count, channels=3, size=(5, 4), seed=0):
    """Random images as (count, channels, height, width)."""
    return np.random.default_rng(seed).integers(0, 256, (count, channels, *size), dtype=np.uint8)


def encoded(pixels, form="png"):
    buffer = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(buffer, form, lossless=True)
    return buffer.getvalue()


def write_parquet(path, blobs, labels, *, columns=("img", "label"), classes=CLASSES, kind="ClassLabel", group=2):
    """Write a file in the hub's format: structs of bytes and path, labels, and the class names in the metadata."""
    image, label = columns
    structs = pa.array(
        [{"bytes": blob, "path": None} for blob in blobs], pa.struct({"bytes": "binary", "path": "string"})
    )
    table = pa.table({image: structs, label: pa.array(labels, pa.int64())})
    if classes is not None:
        features = {image: {"_type": "Image"}, label: {"_type": kind, "names": classes}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)


TRAIN, TEST = pictures(11), pictures(4, seed=1)
LABELS, TEST_LABELS = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0], [2, 1, 0, 0]


def write_hub(root, below="cifar10/plain_text", train=TRAIN, test=TEST, form="png", **options):
    """Two training files and one test file, in the hub's layout; several row groups in each."""
    labels = LABELS[: len(train)]
    for number, rows in enumerate((slice(0, 6), slice(6, None))):
        path = root / below / f"train-{number:05}-of-00002.parquet"
        write_parquet(path, [encoded(pixels, form) for pixels in train[rows]], labels[rows], **options)
    path = root / below / "test-00000-of-00001.parquet"
    write_parquet(path, [encoded(pixels, form) for pixels in test], TEST_LABELS, **options)
    return root


def write_folder(base, train=TRAIN, test=TEST, test_name="test"):
    """An image folder; the images come back sorted by class."""
    for part, images, labels in (("train", train, LABELS), (test_name, test, TEST_LABELS)):
        for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            path = base / part / CLASSES[label] / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(pixels))
    return base


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def in_processes(monkeypatch):
    """Decode the training part in two processes, even with few images and cores."""
    monkeypatch.setattr(cache_module, "PARALLEL_FROM", len(TRAIN))
    monkeypatch.setattr(cache_module, "cores", lambda: 2)


def assert_holds(data, train=TRAIN, test=TEST, labels=LABELS, test_labels=TEST_LABELS):
    assert np.array_equal(data.images, train)
    assert np.array_equal(data.test_images, test)
    assert data.labels.tolist() == list(labels)
    assert data.test_labels.tolist() == list(test_labels)
    assert data.images.dtype == data.test_images.dtype == np.uint8
    assert data.labels.dtype == data.test_labels.dtype == np.int64
    for array in (data.images, data.labels, data.test_images, data.test_labels):
        assert not array.flags.writeable


def only_folder(cache):
    (folder,) = cache.iterdir()
    return folder


@pytest.fixture
def no_decoding(monkeypatch):
    """A function after whose call decoding is an error."""

    def forbid():
        def refuse(*_):
            raise AssertionError("decoded again")

        monkeypatch.setattr(cache_module, "decode", refuse)

    return forbid


def test_hub_files_are_decoded_exactly(tmp_path):
    data = load_dataset("cifar10", write_hub(tmp_path))
    assert_holds(data)
    assert (data.name, data.classes, data.num_classes, data.shape) == ("cifar10", CLASSES, 3, (3, 5, 4))
    assert isinstance(data.images, np.memmap)


@pytest.mark.parametrize("form", ["webp", "bmp", "tiff"])
def test_every_lossless_format_is_decoded_exactly(tmp_path, form):
    assert_holds(load_dataset("cifar10", write_hub(tmp_path, form=form)))


def test_decoding_in_processes_gives_the_same_arrays(tmp_path, in_processes, no_decoding):
    rows = np.arange(700) % 11  # more than one batch of rows is read at a time
    blobs = [encoded(pixels) for pixels in TRAIN]
    for number, part in enumerate(np.array_split(rows, 3)):
        path = tmp_path / "cifar10" / f"train-{number}.parquet"
        write_parquet(path, [blobs[row] for row in part], [LABELS[row] for row in part], group=300)
    write_parquet(tmp_path / "cifar10" / "test-0.parquet", [encoded(pixels) for pixels in TEST], TEST_LABELS)
    load_dataset("cifar10", tmp_path)
    no_decoding()
    assert_holds(load_dataset("cifar10", tmp_path), TRAIN[rows], labels=[LABELS[row] for row in rows])


def test_images_of_different_formats_may_be_mixed(tmp_path):
    blobs = [encoded(pixels, form) for pixels, form in zip(TRAIN, ["png", "bmp", "webp"] * 4, strict=False)]
    write_parquet(tmp_path / "cifar10" / "train-0.parquet", blobs, LABELS)
    write_parquet(tmp_path / "cifar10" / "test-0.parquet", [encoded(pixels) for pixels in TEST], TEST_LABELS)
    assert_holds(load_dataset("cifar10", tmp_path))


def test_an_unguarded_script_is_not_run_again(tmp_path, cache):
    write_hub(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(
        "from fedeas.data import cache, sources\n"
        "print('once')\n"
        f"cache.PARALLEL_FROM, cache.cores = {len(TRAIN)}, lambda: 2\n"
        f"print(sources.load_dataset('cifar10', {str(tmp_path)!r}).images.sum())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.split() == ["once", str(TRAIN.sum())]


def test_grey_images_have_one_channel(tmp_path):
    train, test = pictures(11, 1), pictures(4, 1)
    write_hub(tmp_path, "fashion-mnist/fashion_mnist", train, test, columns=("image", "label"))
    data = load_dataset("fashion-mnist", tmp_path)
    assert_holds(data, train, test)
    assert data.shape == (1, 5, 4)


def test_grey_images_become_colour_if_the_test_part_is(tmp_path):
    grey = pictures(11, 1)
    data = load_dataset("cifar10", write_hub(tmp_path, train=grey))
    assert_holds(data, np.repeat(grey, 3, axis=1))


def test_grey_images_become_colour_if_another_process_finds_a_colour_image(tmp_path, in_processes):
    grey = pictures(11, 1)
    mixed = [*grey[:10], TRAIN[10]]
    data = load_dataset("cifar10", write_hub(tmp_path, train=mixed, test=pictures(4, 1)))
    assert np.array_equal(data.images[:10], np.repeat(grey[:10], 3, axis=1))
    assert np.array_equal(data.images[10], TRAIN[10])
    assert data.test_images.shape == (4, 3, 5, 4)


def test_palettes_and_transparency_become_colour(tmp_path):
    base = write_folder(tmp_path / "pets")
    first = sorted((base / "train").glob("*/*.png"))[:2]
    Image.open(first[0]).convert("RGBA").save(first[0])
    Image.open(first[1]).quantize(8).save(first[1])
    expected = [np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1) for path in first]
    data = load_dataset(f"folder:{base}")
    assert np.array_equal(data.images[:2], expected)


def decoded(image, form="png", **options):
    """The pixels of one Pillow image that was saved and read again."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    ((_, pixels),) = cache_module.decode([("here", buffer.getvalue())])
    return pixels


def test_photographs_with_a_second_view_are_read_one_after_the_other():
    """Pillow calls the format of such JPEG files MPO, by which name it cannot open another one."""
    views, buffer = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in pictures(2)], io.BytesIO()
    views[0].save(buffer, "mpo", save_all=True, append_images=views[1:])
    found = [pixels for _, pixels in cache_module.decode([("here", buffer.getvalue())] * 3)]
    assert len(found) == 3
    assert np.array_equal(found[0], found[2])


def with_alpha(pixels, alpha):
    """The image in Pillow's mode LA or RGBA."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    image.putalpha(Image.fromarray(alpha))
    return image


@pytest.mark.parametrize("channels", [1, 3])
def test_transparent_pixels_lie_on_white(channels):
    pixels, alpha = pictures(1, channels)[0], pictures(1, 1, seed=1)[0, 0]
    alpha[:2] = [[0], [255]]
    weight = alpha / 255
    found = decoded(with_alpha(pixels, alpha))
    assert found.shape == pixels.shape
    assert np.abs(found - (weight * pixels + (1 - weight) * 255)).max() <= 1  # rounding
    assert (found[:, 0] == 255).all()
    assert np.array_equal(found[:, 1], pixels[:, 1])


@pytest.mark.parametrize("mode", ["L", "RGB", "P"])
def test_a_colour_that_a_file_declares_transparent_is_white(mode):
    image = Image.fromarray(np.array([[7, 200]], np.uint8)).convert(mode)
    hidden = (7, 7, 7) if mode == "RGB" else image.getpixel((0, 0))
    assert decoded(image, transparency=hidden)[0].tolist() == [[255, 200]]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_palette_of_greys_gives_one_channel(channels):
    pixels = pictures(1, channels)[0]
    image = Image.fromarray(np.repeat(pixels, 3 // channels, axis=0).transpose(1, 2, 0)).quantize(32)
    assert np.array_equal(decoded(image), pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_data_say(orientation):
    """Orientations above 4 exchange the rows and columns of what is stored."""
    pixels = pictures(1)[0]
    mirrored = {2: np.s_[:, :, ::-1], 3: np.s_[:, ::-1, ::-1], 4: np.s_[:, ::-1]}
    turned = {5: np.s_[:], 6: np.s_[:, :, ::-1], 7: np.s_[:, ::-1, ::-1], 8: np.s_[:, ::-1]}
    expected = (
        pixels.transpose(0, 2, 1)[turned[orientation]]
        if orientation > 4
        else pixels[mirrored.get(orientation, np.s_[:])]
    )
    exif = Image.Exif()
    exif[274] = orientation
    assert np.array_equal(decoded(Image.fromarray(pixels.transpose(1, 2, 0)), exif=exif), expected)


def test_damaged_exif_data_leave_an_image_as_it_is():
    pixels = pictures(1)[0]
    image = Image.fromarray(pixels.transpose(1, 2, 0))
    assert np.array_equal(decoded(image, exif=b"Exif\0\0damaged"), pixels)


def test_fine_labels_are_the_labels_of_cifar100(tmp_path):
    coarse = {"fine_label": LABELS, "coarse_label": [0] * 11}
    for split, images in (("train", TRAIN), ("test", TEST)):
        path = tmp_path / "cifar100" / "cifar100" / f"{split}-00000-of-00001.parquet"
        blobs = [encoded(pixels) for pixels in images]
        write_parquet(path, blobs, coarse["fine_label"][: len(images)], columns=("img", "fine_label"))
        table = pq.read_table(path)
        pq.write_table(table.append_column("coarse_label", [coarse["coarse_label"][: len(images)]]), path)
    data = load_dataset("cifar100", tmp_path)
    assert data.classes == CLASSES
    assert_holds(data, test_labels=LABELS[:4])


def test_any_hub_repository_with_its_own_column_names(tmp_path):
    write_hub(tmp_path, "someone/pets/data", columns=("picture", "species"))
    data = load_dataset("hub:someone/pets", tmp_path)
    assert_holds(data)
    assert data.classes == CLASSES


def test_without_metadata_classes_are_numbers(tmp_path):
    data = load_dataset("cifar10", write_hub(tmp_path, classes=None))
    assert_holds(data)
    assert data.classes == ("0", "1", "2")


def test_metadata_of_other_columns_may_have_any_form(tmp_path):
    root = write_hub(tmp_path)
    features = {"boxes": [{"_type": "Value"}], "label": {"_type": "ClassLabel", "names": CLASSES}}
    with_metadata(split_file(root), {"info": {"features": features}})
    assert load_dataset("cifar10", root).classes == CLASSES


def test_validation_stands_in_for_a_missing_test_split(tmp_path):
    root = write_hub(tmp_path)
    path = root / "cifar10/plain_text/test-00000-of-00001.parquet"
    path.rename(path.with_name("validation-00000-of-00001.parquet"))
    assert_holds(load_dataset("cifar10", root))


@pytest.mark.parametrize("test_name", ["test", "val", "valid"])
def test_image_folders_are_read_in_class_order(tmp_path, test_name):
    base = write_folder(tmp_path / "pets", test_name=test_name)
    (base / "train" / "ant" / "notes.txt").write_text("no image")
    order, test_order = np.argsort(LABELS, kind="stable"), np.argsort(TEST_LABELS, kind="stable")
    data = load_dataset(f"folder:{base}")
    assert_holds(data, TRAIN[order], TEST[test_order], sorted(LABELS), sorted(TEST_LABELS))
    assert data.classes == CLASSES


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *[("train/ant/a.jp2", 2), ("train/ant/a.HEIC", 2), ("val/ant/a.png", 2), ("a.png", 2)],
        *[("train/ant/._a.png", 0), ("train/ant/Thumbs.db", 0), ("train/ant/a.txt", 0), (".trash/ant/a.png", 0)],
    ],
)
def test_a_note_counts_images_that_are_not_used(tmp_path, name, count):
    base = write_folder(tmp_path / "pets")
    for path in (base / name, (base / name).with_stem((base / name).stem + "b")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    notes = load_dataset(f"folder:{base}").notes
    assert len(notes) == bool(count)
    assert all(f"{count} images such as {name}" in note for note in notes)


@settings(max_examples=30)
@given(places=st.lists(st.sampled_from(["", "train", "train/ant", "test", "test/bee"]), min_size=1, max_size=12),
       leads_to=st.sampled_from(["", "train", "train/ant", "..", "../.."]))  # fmt: skip
def test_no_folder_is_read_twice_however_many_links_lead_to_it(tmp_path_factory, places, leads_to):
    base, opened = write_folder(tmp_path_factory.mktemp("links") / "pets"), Counter()
    for number, place in enumerate(places):
        (base / place / f"link{number}").symlink_to(base / leads_to)
    scan = os.scandir

    def counted(folder):
        opened[folder.stat().st_ino] += 1
        return scan(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", counted)
        with pytest.raises(InputError, match=r"link\d+: the same folder as .*; remove the link$|^.*: the same folder"):
            load_dataset(f"folder:{base}")
    assert max(opened.values(), default=1) == 1


def test_a_link_to_nothing_is_an_error_that_names_it(tmp_path):
    for number, name in enumerate(("train/ant/a.png", "train/cat", "new", "test/bee/notes.txt")):
        base = write_folder(tmp_path / str(number))
        (base / name).symlink_to(tmp_path / "nothing")
        with pytest.raises(InputError, match=f"{base / name}: a symbolic link to nothing; remove it"):
            load_dataset(f"folder:{base}")


@settings(max_examples=50)
@given(name=st.binary(min_size=1, max_size=20).filter(lambda name: not {*name} & {*b"\0/"} and name[:1] != b"."),
       part=st.sampled_from(["train/{}", "train/ant/{}.png", "{}"]))  # fmt: skip
def test_every_name_of_a_file_is_read_or_refused_in_a_line_that_can_be_written(tmp_path_factory, name, part):
    base = write_folder(tmp_path_factory.mktemp("names") / "pets")
    place = base / part.format(os.fsdecode(name))
    if place.suffix == ".png":
        place.write_bytes(encoded(TRAIN[0]))
    else:
        place.mkdir(exist_ok=True)
    try:
        data = load_dataset(f"folder:{base}")
        assert in_one_form(place.relative_to(base).as_posix()) in {*map(in_one_form, data.sample_names)} or part == "{}"
    except InputError as error:
        assert str(error).encode()


@settings(max_examples=20)
@given(width=st.integers(1, 2**31 - 1), height=st.integers(1, 2**31 - 1))
def test_images_that_are_too_large_are_refused_by_what_their_header_says(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    picture = header + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    assume(width * height > MOST_PIXELS)
    with pytest.raises(InputError, match=r"^x: too large \(an image may have at most .* pixels in FedEAS\)"):
        list(decode([("x", picture)]))


def test_the_largest_image_is_below_the_limit_of_pillow():
    assert Image.MAX_IMAGE_PIXELS > MOST_PIXELS


def test_small_files_that_would_become_large_arrays_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedeas.data.cache.FREE_BYTES", 10_000)
    blank = np.zeros((3, 300, 300), np.uint8)
    base = write_folder(tmp_path / "pets", [blank] * len(TRAIN), [blank] * len(TEST))
    with pytest.raises(InputError, match=r"pets: images of .* bytes would become .*; make them smaller$"):
        load_dataset(f"folder:{base}")


def test_names_of_classes_and_clients_are_compared_in_one_form_of_unicode(tmp_path):
    one, other = "K\u00e4se", "Ka\u0308se"  # written as one letter, and as a letter with an accent
    for number, folder in enumerate((f"train/a/{one}", f"train/{other}/{other}", f"test/{other}")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.png").write_bytes(encoded(TRAIN[number]))
    data = load_dataset(f"folder:{tmp_path}")
    assert (data.classes, data.clients) == ((one,), (one, "a"))
    assert (data.labels.tolist(), sorted(data.owners.tolist())) == ([0, 0], [0, 1])
    assert data.test_labels.tolist() == [0]
    assert load_own(f"folder:{tmp_path}").classes == (one,)


@pytest.mark.parametrize(
    "keys", [("images", "labels", "test_images", "test_labels"), ("x_train", "y_train", "x_test", "y_test")]
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "grey"])
def test_npz_files_in_each_layout(tmp_path, keys, layout):
    train, test = (TRAIN[:, :1], TEST[:, :1]) if layout == "grey" else (TRAIN, TEST)
    arrange = {"NCHW": lambda x: x, "NHWC": lambda x: x.transpose(0, 2, 3, 1), "grey": lambda x: x[:, 0]}[layout]
    labels, test_labels = np.array(LABELS, np.uint8)[:, None], np.array(TEST_LABELS)
    path = tmp_path / "data.npz"
    np.savez(path, **dict(zip(keys, (arrange(train), labels, arrange(test), test_labels), strict=True)))
    data = load_dataset(f"npz:{path}")
    assert_holds(data, train, test)
    assert data.classes == ("0", "1", "2")


def test_npz_files_may_name_the_classes(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, images=TRAIN, labels=LABELS, test_images=TEST, test_labels=TEST_LABELS, classes=CLASSES)
    assert load_dataset(f"npz:{path}").classes == CLASSES


def test_a_fifth_of_each_class_of_an_npz_without_a_test_part_is_for_testing(tmp_path):
    labels = np.repeat([0, 1, 2], (10, 3, 1))
    images = np.random.default_rng(0).integers(0, 256, (14, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=labels[:, None])
    order = np.random.default_rng(1).permutation(14)
    np.savez(tmp_path / "b.npz", images=images[order], labels=labels[order])
    one, other = (load_dataset(f"npz:{tmp_path / name}.npz") for name in "ab")
    assert np.bincount(one.test_labels, minlength=3).tolist() == [2, 1, 0]
    assert np.bincount(one.labels).tolist() == [8, 2, 1]
    assert sorted(map(bytes, one.test_images)) == sorted(map(bytes, other.test_images))  # whatever the order
    together = np.concatenate([one.images, one.test_images])
    assert sorted(map(bytes, together)) == sorted(map(bytes, images))
    assert one.notes


def overlap(data):
    train = {*map(bytes, data.images)}
    return sum(bytes(image) in train for image in data.test_images)


@pytest.mark.parametrize("copies", [2, 50])
def test_equal_images_of_an_npz_are_all_for_training_or_all_for_testing(tmp_path, copies):
    np.savez(tmp_path / "data.npz", images=np.repeat(TRAIN, copies, axis=0), labels=np.repeat(LABELS, copies))
    data = load_dataset(f"npz:{tmp_path / 'data.npz'}")
    assert overlap(data) == 0
    assert {*data.labels.tolist()} == {*data.test_labels.tolist()} == {0, 1, 2}
    assert len(data.notes) == 1  # on the test part


def test_equal_images_are_divided_if_a_class_has_no_others(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.repeat(TRAIN[:1], 10, axis=0), labels=[0] * 10)
    data = load_dataset(f"npz:{tmp_path / 'data.npz'}")
    assert (len(data.labels), len(data.test_labels)) == (8, 2)
    assert "2 of 2 test images are in the training part" in data.notes[-1]


def repeated_npz(base):
    test = np.concatenate([TEST[:2], TRAIN[[3, 3]]])
    np.savez(base / "data.npz", images=TRAIN, labels=LABELS, test_images=test, test_labels=TEST_LABELS)
    return f"npz:{base / 'data.npz'}"


def repeated_folder(base):
    return f"folder:{write_folder(base / 'pets', test=[*TEST[:2], *TRAIN[[3, 3]]])}"


def repeated_parquet(base):
    return f"parquet:{write_hub(base, test=[*TEST[:2], *TRAIN[[3, 3]]]) / 'cifar10'}"


@pytest.mark.parametrize("write", [repeated_npz, repeated_folder, repeated_parquet])
def test_a_note_counts_test_images_of_the_training_part(tmp_path, write):
    name = write(tmp_path)
    for _ in range(2):  # decoded, and from the cache
        data = load_dataset(name)
        assert overlap(data) == 2
        assert "2 of 4 test images are in the training part" in data.notes[-1]


def test_digits_are_split_by_class_and_always_the_same_way():
    data, again = load_dataset("digits"), load_dataset("digits")
    assert data.shape == (1, 8, 8)
    assert data.classes == tuple("0123456789")
    known = KNOWN["digits"]
    assert tuple(np.bincount(data.labels)) == known.train
    assert tuple(np.bincount(data.test_labels)) == known.test
    assert known.test == tuple(round(0.2 * size) for size in np.add(known.train, known.test))
    assert_holds(again, data.images, data.test_images, data.labels, data.test_labels)


def test_digits_are_all_there_scaled_to_bytes():
    from sklearn.datasets import load_digits

    data, original = load_dataset("digits"), load_digits()
    ours = np.concatenate([data.images, data.test_images]).reshape(-1, 64)
    labels = np.concatenate([data.labels, data.test_labels])
    scaled = np.rint(original.data * 255 / 16)
    assert (ours.min(), ours.max()) == (0, 255)
    expected = sorted((*row, label) for row, label in zip(scaled.tolist(), original.target.tolist(), strict=True))
    assert sorted((*row, label) for row, label in zip(ours.tolist(), labels.tolist(), strict=True)) == expected


@pytest.mark.parametrize("count", [11, 3000])  # in one block, and in many
def test_channel_statistics_are_those_of_the_training_part(tmp_path, count):
    train, labels = pictures(count, size=(9, 16)), np.arange(count) % 3
    np.savez(tmp_path / "data.npz", images=train, labels=labels, test_images=train[:2] // 2, test_labels=labels[:2])
    data = load_dataset(f"npz:{tmp_path / 'data.npz'}")
    assert data.channel_mean == pytest.approx((train / 255).mean(axis=(0, 2, 3)), rel=1e-12)
    assert data.channel_std == pytest.approx((train / 255).std(axis=(0, 2, 3)), rel=1e-12)


def test_a_single_colour_has_no_deviation(tmp_path):
    train = np.full((4, 6, 5), 77, np.uint8)
    np.savez(tmp_path / "data.npz", images=train, labels=[0, 1, 0, 1], test_images=train, test_labels=[0, 1, 0, 1])
    data = load_dataset(f"npz:{tmp_path / 'data.npz'}")
    assert (data.channel_mean, data.channel_std) == (pytest.approx((77 / 255,)), (0.0,))


# ---------------------------------------------------------------- the cache


def test_a_second_load_decodes_nothing(tmp_path, no_decoding):
    root, base = write_hub(tmp_path / "root"), write_folder(tmp_path / "pets")
    first = load_dataset("cifar10", root), load_dataset(f"folder:{base}")
    no_decoding()
    again = load_dataset("cifar10", root), load_dataset(f"folder:{base}")
    for before, after in zip(first, again, strict=True):
        assert_holds(after, before.images, before.test_images, before.labels, before.test_labels)
        assert after.classes == before.classes


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    root = write_hub(tmp_path / "root")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDEAS_CACHE", raising=False)
    load_dataset("cifar10", root)
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "elsewhere"))
    load_dataset("cifar10", root)
    found = sorted(path.relative_to(tmp_path).parts[:-2] for path in tmp_path.rglob("manifest.json"))
    assert found == [("elsewhere",), ("home", ".cache", "fedeas")]


def test_changed_sources_are_decoded_again(tmp_path):
    root = write_hub(tmp_path)
    load_dataset("cifar10", root)
    assert_holds(load_dataset("cifar10", write_hub(tmp_path, train=255 - TRAIN)), 255 - TRAIN)
    base = write_folder(tmp_path / "pets")
    load_dataset(f"folder:{base}")
    (base / "train" / "dog").mkdir()
    with pytest.raises(InputError, match="class 'dog' has no images"):
        load_dataset(f"folder:{base}")


def test_folders_with_the_same_names_sizes_and_times_are_kept_apart(tmp_path):
    first, second = write_folder(tmp_path / "a" / "pets"), write_folder(tmp_path / "b" / "pets", 255 - TRAIN)
    for path in [*first.rglob("*.png"), *second.rglob("*.png")]:
        Image.open(path).save(path, "bmp")  # all of one size
        os.utime(path, (1, 1))
    one, other = (load_dataset(f"folder:{base}") for base in (first, second))
    assert np.array_equal(one.images, 255 - other.images)


def write_bitmaps(base):
    """Images that agree in size and time of modification, as those of an unpacked archive may."""
    for label, name in enumerate(("ant", "bee")):
        (base / name).mkdir(parents=True)
        for number in range(5):
            path = base / name / f"{number}.bmp"
            path.write_bytes(encoded(np.full((1, 4, 4), 100 * label + number, np.uint8), "bmp"))
            os.utime(path, (1, 1))
    return base


def test_classes_that_change_places_are_read_again(tmp_path):
    base = write_bitmaps(tmp_path / "pets")
    before = load_dataset(f"folder:{base}")
    for old, new in (("ant", "aside"), ("bee", "ant"), ("aside", "bee")):
        (base / old).rename(base / new)
    after = load_dataset(f"folder:{base}")
    for images, labels, new_images, new_labels in (
        (before.images, before.labels, after.images, after.labels),
        (before.test_images, before.test_labels, after.test_images, after.test_labels),
    ):
        assert np.array_equal(new_images[new_labels == 0], images[labels == 1])
        assert np.array_equal(new_images[new_labels == 1], images[labels == 0])


def test_an_edited_image_is_read_again_also_if_its_time_is_set_back(tmp_path):
    base = write_bitmaps(tmp_path / "pets")
    before = load_dataset(f"folder:{base}")
    for path in base.rglob("*.bmp"):
        path.write_bytes(encoded(255 - np.asarray(Image.open(path))[None], "bmp"))
        os.utime(path, (1, 1))
    assert np.array_equal(load_dataset(f"folder:{base}").images, 255 - before.images)


def test_an_incomplete_cache_is_built_again(tmp_path, cache):
    root = write_hub(tmp_path)
    load_dataset("cifar10", root)
    (only_folder(cache) / "manifest.json").unlink()
    (only_folder(cache) / "test_labels.npy").unlink()
    assert_holds(load_dataset("cifar10", root))
    assert (only_folder(cache) / "manifest.json").is_file()


NAMES = ["images.npy", "labels.npy", "test_images.npy", "test_labels.npy", "manifest.json"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["flip", "shorten", "empty", "remove"])
def test_a_damaged_cache_is_built_again(tmp_path, cache, name, damage, no_decoding):
    root = write_hub(tmp_path)
    load_dataset("cifar10", root)
    path = only_folder(cache) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"flip": content, "shorten": content[:-1], "empty": b""}[damage])
    data = load_dataset("cifar10", root)
    assert_holds(data)
    assert data.classes == CLASSES
    no_decoding()
    assert_holds(load_dataset("cifar10", root))  # the damage is repaired for good


def test_a_build_that_fails_leaves_nothing_behind(tmp_path, cache):
    root = write_hub(tmp_path)
    broken = [encoded(pixels) for pixels in TEST[:3]] + [b"no image"]
    write_parquet(root / "cifar10/plain_text/test-00000-of-00001.parquet", broken, TEST_LABELS)
    with pytest.raises(InputError):
        load_dataset("cifar10", root)
    assert list(cache.iterdir()) == []


def test_leftovers_of_killed_builds_are_removed(tmp_path, cache):
    root = write_hub(tmp_path)
    load_dataset("cifar10", root)
    folder, nobody = only_folder(cache), 2**22 + 1  # above the largest number of a process
    folder.rename(folder.with_name(temporary(folder).name.replace(f"-{os.getpid()}-", f"-{nobody}-")))
    assert_holds(load_dataset("cifar10", root))
    assert list(cache.iterdir()) == [folder]


def environment(**extra):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **extra}


def test_two_processes_may_build_the_same_cache(tmp_path, cache, no_decoding):
    train = np.repeat(TRAIN, 40, axis=0)
    write_parquet(tmp_path / "cifar10/train-0.parquet", [encoded(pixels) for pixels in train], LABELS * 40)
    write_parquet(tmp_path / "cifar10/test-0.parquet", [encoded(pixels) for pixels in TEST], TEST_LABELS)
    code = (
        "from fedeas.data.sources import load_dataset\n"
        f"data = load_dataset('cifar10', {str(tmp_path)!r})\n"
        "print(data.images.sum(), data.test_images.sum())"
    )
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(2)]
    assert [process.communicate()[0].split() for process in both] == [[str(train.sum()), str(TEST.sum())]] * 2
    no_decoding()
    assert_holds(load_dataset("cifar10", tmp_path), train, labels=LABELS * 40)
    assert only_folder(cache)  # and nothing beside it


def test_many_threads_may_repair_the_same_cache(tmp_path, cache):
    root = write_hub(tmp_path)
    load_dataset("cifar10", root)
    (only_folder(cache) / "images.npy").write_bytes(b"")
    with ThreadPoolExecutor(4) as pool:
        for data in pool.map(lambda _: load_dataset("cifar10", root), range(4)):
            assert_holds(data)
    assert only_folder(cache)


def test_a_cache_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    root = write_hub(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        InputError, match=r"file/cache: cannot be written \(Not a directory\); set FEDEAS_CACHE to another"
    ):
        load_dataset("cifar10", root)


# ---------------------------------------------------------------- the hub


def offline(tmp_path, name):
    """Load by name without a root, with a hub that cannot be reached; the lines printed."""
    code = (
        "from fedeas.data.sources import load_dataset as load\n"
        f"try: d = load({name!r}); print(d.classes, d.images.sum())\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    places = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(tmp_path / "hf" / "hub"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**places), check=True)
    return done.stdout.splitlines()


def test_files_that_the_hub_client_has_fetched_are_used(tmp_path):
    repository = tmp_path / "hf" / "hub" / "datasets--uoft-cs--cifar10"
    revision = "0123456789" * 4
    write_hub(repository / "snapshots" / revision, "plain_text")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    assert offline(tmp_path, "cifar10") == [f"{CLASSES} {TRAIN.sum()}"]


@pytest.mark.parametrize(("name", "repository"), [("cifar100", "uoft-cs/cifar100"), ("hub:some/pets", "some/pets")])
def test_an_unreachable_hub_is_reported_in_one_line_with_the_remedy(tmp_path, name, repository):
    (line,) = offline(tmp_path, name)
    assert line.startswith(f"InputError {repository}: cannot be fetched from the Hugging Face Hub (")
    assert line.endswith(f"or give a folder that holds {name.removeprefix('hub:')}/*.parquet (root, --data-root)")


# ---------------------------------------------------------------- what is refused


def test_an_npz_entry_that_is_not_an_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        for name in ("images", "labels", "test_images", "test_labels"):
            archive.writestr(f"{name}.npy", b"")
    with pytest.raises(InputError, match=r"data\.npz: damaged \(images is not an array\)"):
        load_dataset(f"npz:{tmp_path / 'data.npz'}")


@pytest.mark.parametrize("name", ["mnist", "", "hub:pets", "hub:../../etc", "folder:", "npz:", "digits:"])
def test_unknown_names_are_refused(name):
    known = "known are digits, cifar10, cifar100, fashion-mnist, hub:owner/name, folder:DIR, npz:FILE"
    with pytest.raises(InputError, match=f"unknown dataset '{name}'; {known}"):
        load_dataset(name)


@pytest.mark.parametrize(
    ("package", "name", "use"),
    [
        ("sklearn", "digits", "the dataset digits"),
        ("huggingface_hub", "cifar10", "a download from the Hub"),
        ("PIL", "hub:a/b", "reading images"),
    ],
)
def test_missing_packages_are_named_with_the_remedy(tmp_path, monkeypatch, package, name, use):
    write_hub(tmp_path, "a/b")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"^{use} needs {package}: pip install 'fedeas\[train\]'$"):
        load_dataset(name, tmp_path if name.startswith("hub") else None)


def split_file(root, split="train", number=0, of=2):
    return root / "cifar10/plain_text" / f"{split}-{number:05}-of-{of:05}.parquet"


def replaced_image(root, row, blob, **options):
    blobs = [encoded(pixels) for pixels in TRAIN[6:]]
    blobs[row] = blob
    write_parquet(split_file(root, number=1), blobs, LABELS[6:], **options)


def with_labels(root, labels, **options):
    write_parquet(
        split_file(root, number=1), [encoded(pixels) for pixels in TRAIN[6 : 6 + len(labels)]], labels, **options
    )


def blobs(count):
    return [encoded(pixels) for pixels in TRAIN[:count]]


def two_image_columns(path):
    table = pq.read_table(path)
    pq.write_table(pa.table({"left": table["img"], "right": table["img"], "label": table["label"]}), path)


def with_metadata(path, metadata):
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(metadata)}), path)


def deep(mode):
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((5, 4), mode)).save(buffer, "tiff")
    return buffer.getvalue()


HUB_FAULTS = {
    "no folder": (
        lambda root: (root / "cifar10").rename(root / "other"),
        "cifar10: no such folder; put the Parquet files of uoft-cs/cifar10 there$",
    ),
    "no files": (
        lambda root: [path.unlink() for path in root.rglob("*.parquet")],
        "cifar10: no train split; there must be a file such as train-00000-of-00001.parquet$",
    ),
    "no test": (
        lambda root: split_file(root, "test", of=1).unlink(),
        "cifar10: no test split; there must be a file such as test-",
    ),
    "a file is missing": (
        lambda root: split_file(root, number=1).unlink(),
        "train-00000-of-00002.parquet: one of 2 files, but 1 are there; fetch them again$",
    ),
    "two configurations": (
        lambda root: write_hub(root, "cifar10/other"),
        r"cifar10: train files in several folders \(other, plain_text\); keep one",
    ),
    "no Parquet": (
        lambda root: split_file(root).write_bytes(b"nothing"),
        r"train-00000-of-00002.parquet: cannot be read as Parquet \(.*\); fetch it again$",
    ),
    "a later file is no Parquet": (
        lambda root: split_file(root, number=1).write_bytes(b"nothing"),
        r"train-00001-of-00002.parquet: cannot be read as Parquet \(.*\); fetch it again$",
    ),
    "other columns in a later file": (
        lambda root: with_labels(root, LABELS[6:], columns=("picture", "label")),
        r"train-00001-of-00002.parquet: cannot be read as Parquet \(.*img.*\); fetch it again$",
    ),
    "no images": (
        lambda root: pq.write_table(pa.table({"text": ["a"], "label": [0]}), split_file(root)),
        r"train-00000-of-00002.parquet: columns text, label; there must be a column of images \(.*\) and one of labels",
    ),
    "no labels": (
        lambda root: write_hub(root, columns=("img", "number"), kind="Value"),
        "parquet: columns img, number; there must be .* one of labels; call them image and label$",
    ),
    "several images": (
        lambda root: two_image_columns(split_file(root)),
        "train-00000-of-00002.parquet: columns left, right, label; .*; call them image and label$",
    ),
    "another order of classes in the test part": (
        lambda root: write_parquet(split_file(root, "test", of=1), blobs(4), TEST_LABELS, classes=CLASSES[::-1]),
        "test-00000-of-00001.parquet: its classes or their order differ from those of .*train-00000-of-00002.parquet",
    ),
    "other classes in a later file": (
        lambda root: with_labels(root, LABELS[6:], classes=(*CLASSES, "dog")),
        "train-00001-of-00002.parquet: its classes or their order differ",
    ),
    "two classes of one name": (
        lambda root: write_hub(root, classes=("ant", "bee", "ant")),
        "train-00000-of-00002.parquet: classes 0 and 2 are both called 'ant'",
    ),
    "odd metadata": (
        lambda root: with_metadata(split_file(root), {"info": None}),
        "train-00000-of-00002.parquet: cannot be read as Parquet",
    ),
    "broken image": (
        lambda root: replaced_image(root, 3, b"no image"),
        r"train-00001-of-00002.parquet: row 4: cannot be decoded \(.*\); repair or remove the image$",
    ),
    "cut image": (
        lambda root: replaced_image(root, 3, encoded(TRAIN[0])[:60]),
        r"train-00001-of-00002.parquet: row 4: cannot be decoded \(.*\); repair or remove the image$",
    ),
    "missing image": (
        lambda root: replaced_image(root, 0, None),
        r"train-00001-of-00002.parquet: row 1: cannot be decoded \(.*\); repair",
    ),
    "16 bits": (
        lambda root: replaced_image(root, 1, deep(np.uint16)),
        r"row 2: has more than 8 bits for each pixel; convert",
    ),
    "floats": (
        lambda root: replaced_image(root, 1, deep(np.float32)),
        r"row 2: has more than 8 bits for each pixel; convert",
    ),
    "other size": (
        lambda root: replaced_image(root, 2, encoded(pictures(1, size=(7, 9))[0])),
        "train-00001-of-00002.parquet: row 3: the image is 9 x 7 pixels, the first one 4 x 5; bring all to one size$",
    ),
    "label too large": (
        lambda root: with_labels(root, [0, 1, 3, 0, 0]),
        "train-00001-of-00002.parquet: row 3 has label 3, but labels must be from 0 to 2$",
    ),
    "negative label": (
        lambda root: write_hub(root, classes=None) and with_labels(root, [0, -1, 1, 0, 0], classes=None),
        "train-00001-of-00002.parquet: row 2 has label -1, but labels must be 0 or more$",
    ),
    "test label unknown to the training part": (
        lambda root: write_hub(root, classes=None, train=TRAIN[:1].repeat(2, axis=0)),
        "test-00000-of-00001.parquet: row 1 has label 2, but labels must be from 0 to 1$",
    ),
    "label missing": (
        lambda root: with_labels(root, [0, None, 1, 0, 0]),
        "train-00001-of-00002.parquet: labels must be a list of whole numbers, one for each image$",
    ),
    "class missing": (
        lambda root: write_hub(root, classes=(*CLASSES, "dog")),
        "cifar10: class 'dog' has no images in the training part; add some or remove the class$",
    ),
    "empty training part": (
        lambda root: write_hub(root, train=[]),
        "cifar10: the training part is empty; add images to it$",
    ),
    "empty test part": (
        lambda root: write_parquet(split_file(root, "test", of=1), [], []),
        "cifar10: the test part is empty; add images to it$",
    ),
}


@pytest.mark.parametrize("fault", HUB_FAULTS)
def test_faulty_hub_files_are_refused(tmp_path, fault):
    spoil, message = HUB_FAULTS[fault]
    spoil(write_hub(tmp_path))
    with pytest.raises(InputError, match=message) as caught:
        load_dataset("cifar10", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["broken image", "other size"])
def test_errors_in_decoding_processes_are_the_same(tmp_path, in_processes, fault):
    test_faulty_hub_files_are_refused(tmp_path, fault)


def test_a_process_that_dies_is_reported(tmp_path, in_processes, monkeypatch):
    (tmp_path / "path" / "PIL").mkdir(parents=True)
    (tmp_path / "path" / "PIL" / "__init__.py").write_text("raise MemoryError('too little')")
    monkeypatch.syspath_prepend(tmp_path / "path")  # this process has its Pillow already
    with pytest.raises(InputError, match=r"decoding stopped with code 1 \(MemoryError: too little\); try again$"):
        load_dataset("cifar10", write_hub(tmp_path))


def move(old, new):
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)


def remove_images(folder):
    for path in folder.rglob("*.png"):
        path.unlink()


FOLDER_FAULTS = {
    "no train": (lambda base: (base / "train").rename(base / "other"), "pets: holds test and no folder train"),
    "two depths": (
        lambda base: (base / "train" / "ant").rename(base / "train" / "bee" / "ant"),
        "pets: images at two depths, train/.*; make it class/",
    ),
    "images below a class": (
        lambda base: move(base / "train" / "bee" / "001.png", base / "train" / "bee" / "more" / "001.png"),
        r"pets: images at two depths, train/ant/000.png \(one of 10\) and train/bee/more/001.png \(one of 1\)",
    ),
    "images far below a class": (
        lambda base: move(base / "test" / "bee" / "001.png", base / "test" / "bee" / "a" / "b" / "c" / "001.png"),
        "pets: images at two depths, test/",
    ),
    "images beside the classes": (
        lambda base: move(base / "train" / "bee" / "001.png", base / "train" / "001.png"),
        "pets: images at two depths, train/001.png",
    ),
    "empty class": (
        lambda base: remove_images(base / "train" / "bee"),
        "pets: class 'bee' has no images in the training part",
    ),
    "unknown class": (
        lambda base: (base / "test" / "dog").mkdir(),
        "pets/test: class 'dog' is not in train; add it there or remove it here$",
    ),
    "empty test": (lambda base: remove_images(base / "test"), "pets/test: no images in class folders"),
    "broken image": (
        lambda base: (base / "train" / "cow" / "002.png").write_bytes(b"no image"),
        r"train/cow/002.png: cannot be decoded \(.*\); repair or remove the image$",
    ),
    "a folder called like an image": (
        lambda base: (base / "train" / "cow" / "more.png").mkdir(),
        r"train/cow/more.png: cannot be read \(Is a directory\)$",
    ),
    "other size in the test part": (
        lambda base: (base / "test" / "ant" / "003.png").write_bytes(encoded(pictures(1, size=(7, 9))[0])),
        "test/ant/003.png: the image is 9 x 7 pixels, the first one 4 x 5; bring all to one size$",
    ),
}


@pytest.mark.parametrize("fault", FOLDER_FAULTS)
def test_faulty_image_folders_are_refused(tmp_path, fault):
    spoil, message = FOLDER_FAULTS[fault]
    base = write_folder(tmp_path / "pets")
    spoil(base)
    with pytest.raises(InputError, match=message):
        load_dataset(f"folder:{base}")


NPZ_FAULTS = {
    "floats": ({"images": TRAIN / 255}, r"npz: images are float64 \(11, 3, 5, 4\); make them uint8"),
    "flat": ({"images": TRAIN.reshape(11, -1)}, r"npz: images are uint8 \(11, 60\); make them uint8 \(N, H, W\), "),
    "two channels": ({"test_images": TEST[:, :2]}, r"npz: test_images are uint8 \(4, 2, 5, 4\); make them"),
    "channels first or last": ({"images": TRAIN[..., :3]}, r"npz: images are uint8 \(11, 3, 5, 3\); make them"),
    "other size": (
        {"test_images": TEST[:, :, 1:]},
        "npz: training images are 3 x 5 x 4, test images 3 x 4 x 4; bring all",
    ),
    "too few labels": (
        {"labels": LABELS[1:]},
        "npz: 11 images but 10 labels in the training part; there must be one for each$",
    ),
    "too few images": (
        {"test_images": TEST[1:]},
        "npz: 3 images but 4 labels in the test part; there must be one for each$",
    ),
    "label out of range": (
        {"test_labels": [0, 1, 2, 3]},
        "npz: test_labels: row 4 has label 3, but labels must be from 0 to 2$",
    ),
    "no whole labels": ({"labels": np.array(LABELS) / 2}, "npz: labels must be a list of whole numbers"),
    "one-hot labels": ({"labels": np.eye(3, dtype=int)[LABELS]}, "npz: labels must be a list of whole numbers"),
    "two names of one array": (
        {"x_train": TRAIN},
        "npz: there must be one array images or x_train, but there is images and x_train",
    ),
    "class missing": ({"labels": [0, 2] * 5 + [0]}, "npz: class '1' has no images in the training part"),
    "empty": ({"test_images": TEST[:0], "test_labels": []}, "npz: the test part is empty; add images to it$"),
    "two classes of one name": (
        {"classes": ["ant", "bee", "ant"]},
        "npz: classes 0 and 2 are both called 'ant'; rename",
    ),
    "objects": (
        {"labels": np.array(LABELS, object)},
        r"npz: damaged \(.*\); write plain arrays with numpy",
    ),
}


def test_the_shape_in_a_refusal_is_the_one_in_the_file(tmp_path):
    np.savez(tmp_path / "data.npz", images=TRAIN.reshape(11, -1), labels=LABELS)
    with pytest.raises(InputError, match=r"npz: images are uint8 \(11, 60\)"):
        load_dataset(f"npz:{tmp_path / 'data.npz'}")


@pytest.mark.parametrize("fault", NPZ_FAULTS)
def test_faulty_npz_files_are_refused(tmp_path, fault):
    change, message = NPZ_FAULTS[fault]
    sound = {"images": TRAIN, "labels": LABELS, "test_images": TEST, "test_labels": TEST_LABELS}
    np.savez(tmp_path / "data.npz", **{**sound, **change})
    with pytest.raises(InputError, match=message):
        load_dataset(f"npz:{tmp_path / 'data.npz'}")


def test_files_that_are_no_npz_are_refused(tmp_path):
    np.save(tmp_path / "array.npy", TRAIN)
    np.savez(tmp_path / "few.npz", images=TRAIN, labels=LABELS, test_images=TEST)
    (tmp_path / "text.npz").write_text("nothing")
    (tmp_path / "empty.npz").write_text("")
    messages = {
        "array.npy": r"damaged \(.*\); write plain arrays with numpy",
        "few.npz": "there must be one array test_labels or y_test, but there is none",
        "text.npz": r"damaged \(.*\); write plain arrays with numpy",
        "empty.npz": r"damaged \(.*\); write plain arrays with numpy",
        "none.npz": "no such file",
    }
    for name, message in messages.items():
        with pytest.raises(InputError, match=f"{name}: {message}"):
            load_dataset(f"npz:{tmp_path / name}")


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = "import sys, fedeas.data.sources; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert not {"PIL", "pyarrow", "sklearn", "huggingface_hub", "torch"} & set(done.stdout.split())


@given(rows=st.integers(1, 2**16), length=st.integers(1, 2**16), column=st.sampled_from(["image", "label", "text"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_parquet_images_that_would_take_more_memory_than_allowed_are_refused(tmp_path, rows, length, column):
    path, limit, rows = tmp_path / "a.parquet", 2**17, rows if column == "label" else 2
    image = {"bytes": b"\0" * (length if column == "image" else 1), "path": None}
    labels = ["x" * length] * rows if column == "text" else [0] * rows
    pq.write_table(pa.table({"image": [image] * rows, "label": labels}), path, compression="zstd", use_dictionary=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_module, "check_unpacked", partial(check_unpacked, free=limit, per_byte=1))
        with pytest.raises(InputError) as raised:  # none of these images can be decoded
            load_own(f"parquet:{path}")
    if pq.read_table(path).nbytes > 2 * max(limit, path.stat().st_size):
        assert "bytes would become" in str(raised.value)
