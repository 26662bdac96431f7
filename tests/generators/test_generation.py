"""Plans become exactly their images, in memory and on disk."""

import csv
import hashlib
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save_file

import fedeas
from fedeas.calls.images import generate
from fedeas.calls.plan_images import HEADER, MANIFEST, ImageFormat, source_for, write_images
from fedeas.core.errors import InputError
from fedeas.core.files import temporary
from fedeas.data.sources import load_dataset, load_own
from fedeas.generators import GaussianGenerator
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.tables import read_allocation, write_allocation

PLAN = Allocation([[3, 0], [0, 2], [4, 1]], "by hand", ["Ulm", "a/b", "../c"], ["cat", "dog"])
SHAPE = (3, 4, 5)


class Painter:
    """Images that tell their address, and a count of those that were made."""

    num_classes, shape, batch_size, fingerprint = 2, SHAPE, 2, "ab" * 32

    def __init__(self, stop_after=10**9):
        self.made, self.stop_after = 0, stop_after

    def sample(self, labels, index):
        if self.made + len(labels) > self.stop_after:
            raise KeyboardInterrupt
        self.made += len(labels)
        return np.stack([np.random.default_rng((label, i)).integers(0, 256, SHAPE, np.uint8)
                         for label, i in zip(labels.tolist(), index.tolist(), strict=True)])  # fmt: skip


def rows_of(folder):
    with (folder / MANIFEST).open(newline="") as file:
        return list(csv.DictReader(file))


def test_exactly_the_planned_images_are_made():
    made = generate(PLAN, Painter())
    table = np.zeros(PLAN.n.shape, int)
    np.add.at(table, (made.owners, made.labels), 1)
    assert np.array_equal(table, PLAN.n)
    assert len({image.tobytes() for image in made.images}) == PLAN.total


def test_the_images_of_one_client_are_those_it_has_in_the_whole():
    whole, own = generate(PLAN, Painter()), generate(PLAN, Painter(), client="../c")
    assert np.array_equal(own.images, whole.of("../c").images)
    assert np.array_equal(own.of(2).labels, [0, 0, 0, 0, 1])
    images, labels = own.to_torch()[:]
    assert np.array_equal(images.numpy(), own.images)
    assert (own[4][1], labels[4].item()) == (1, 1)


def test_classes_go_by_their_names(tmp_path):
    images = np.arange(40, dtype=np.uint8).repeat(16).reshape(40, 1, 4, 4)
    labels = np.arange(40) % 2
    path = tmp_path / "data.npz"
    np.savez(path, images=images, labels=labels, test_images=images, test_labels=labels, classes=["dog", "cat"])
    given = {"dataset": f"npz:{path}"}
    assert generate(PLAN, Painter(), **given).labels.tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(InputError, match="'fox' of the plan is none of dog, cat"):
        generate(Allocation([[1, 1]], "", None, ["fox", "cat"]), Painter(), **given)


def test_a_function_is_a_generator_and_a_spec_says_what_it_lacks():
    def dots(labels, index):
        return np.full((len(labels), *SHAPE), 7, np.uint8)

    assert generate(PLAN, dots, shape=SHAPE).images.shape == (10, *SHAPE)
    for shape in ((8, 8), (3, 4.5, 5), (3, 0, 5), 8, "3,4,5"):
        with pytest.raises(InputError, match="shape"):
            generate(PLAN, dots, shape=shape)
    for generator in (dots, "gaussian"):
        with pytest.raises(InputError, match="needs to know the images"):
            generate(PLAN, generator)
    with pytest.raises(InputError, match="must be a Generator, a spec"):
        generate(PLAN, 3)
    with pytest.raises(InputError, match="Painter is a class"):
        generate(PLAN, Painter)


def test_a_generator_without_a_batch_size_is_given_one(tmp_path):
    class Plain:
        num_classes, shape, fingerprint = 2, SHAPE, "cd" * 32

        def sample(self, labels, index):
            return Painter().sample(labels, index)

    made = generate(PLAN, Plain(), bank=tmp_path)
    assert np.array_equal(made.images, generate(PLAN, Painter()).images)


@pytest.mark.parametrize("spec", ["gaussian", "shared(of=gaussian)", "agreeing", "sd-turbo", "shared"])
def test_a_spec_that_needs_a_dataset_is_refused_whatever_the_shape(spec):
    with pytest.raises(InputError, match="needs to know the images"):
        generate(PLAN, spec, shape=SHAPE)


@pytest.mark.parametrize("spec", ["{}", "shared(of={})", "shared(of=shared(of={}))"])
def test_a_file_says_which_images_its_generator_makes(tmp_path, spec):
    images = np.random.default_rng(0).integers(0, 256, (20, *SHAPE), dtype=np.uint8)
    fitted = GaussianGenerator.fit(images, np.arange(20) % 2, 2, components=4, class_names=["dog", "cat"])
    fitted.save(tmp_path / "fitted.safetensors")
    made = generate(PLAN, spec.format(f'gaussian(weights="{tmp_path / "fitted.safetensors"}")'))
    assert (made.classes, made.images.shape[1:]) == (("dog", "cat"), SHAPE)
    assert np.bincount(made.labels).tolist() == PLAN.n.sum(axis=0)[::-1].tolist()


def test_wrapped_weights_say_which_images_they_make():
    plan, own = Allocation(np.eye(10, dtype=np.int64)[:1]), "diffusion(weights=digits, steps=2)"
    # The pool's images are those of client 0.
    assert np.array_equal(generate(plan, f"shared(of={own})").images, generate(plan, own).images)


def test_a_pool_that_is_too_small_for_the_plan_is_refused():
    with pytest.raises(InputError, match="a client needs 4 images of a class, the pool has 3"):
        generate(PLAN, "shared(of=gaussian, each=3)")


def test_weights_from_elsewhere_are_refused_with_their_path(tmp_path):
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "foreign.safetensors")
    with pytest.raises(InputError, match=r"foreign\.safetensors: does not say"):
        generate(PLAN, f'diffusion(weights="{tmp_path / "foreign.safetensors"}")')


@pytest.mark.parametrize("form", ImageFormat)
def test_files_hold_the_images_that_the_manifest_lists(tmp_path, form):
    source = source_for(PLAN, Painter())
    done = write_images(source, tmp_path / "out", form)
    whole, rows = generate(PLAN, Painter()), rows_of(tmp_path / "out")
    assert (done.images, done.made, len(rows)) == (10, 10, 10)
    assert [row["sha256"] for row in rows] == [hashlib.sha256(image.tobytes()).hexdigest() for image in whole.images]
    assert [row["index"] for row in rows if row["client"] == "../c"] == ["0", "1", "2", "3", "0"]
    assert not (tmp_path / "out" / ".images").exists()
    for row, image in zip(rows, whole.images, strict=True):
        file = (tmp_path / "out" / row["file"]).resolve()
        assert file.is_relative_to(tmp_path / "out")
        if form is ImageFormat.FOLDER:
            assert np.array_equal(np.asarray(Image.open(file)).transpose(2, 0, 1), image)
        if form is ImageFormat.NPZ:
            assert image.tobytes() in {each.tobytes() for each in load_own(f"npz:{file}").images}


@pytest.mark.parametrize("form", ImageFormat)
@pytest.mark.parametrize("stop_after", [0, 2, 4, 7, 9])
def test_what_was_broken_off_goes_on_where_it_was(tmp_path, form, stop_after):
    broken = Painter(stop_after)
    with pytest.raises(KeyboardInterrupt):
        write_images(source_for(PLAN, broken), tmp_path / "out", form)
    again = Painter()
    write_images(source_for(PLAN, again), tmp_path / "out", form)
    assert broken.made + again.made == PLAN.total
    write_images(source_for(PLAN, Painter()), tmp_path / "whole", form)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize("form", ImageFormat)
def test_images_of_clients_with_names_like_formulas_are_not_made_again(tmp_path, form):
    plan = Allocation([[1, 0], [0, 2], [1, 1]], "by hand", ["-a", "+b", "=c"], ["cat", "dog"])
    write_images(source_for(plan, Painter()), tmp_path / "out", form)
    again = write_images(source_for(plan, Painter()), tmp_path / "out", form)
    assert (again.images, again.made) == (5, 0)


def test_a_lost_file_and_a_torn_manifest_are_made_good(tmp_path):
    folder = tmp_path / "out"
    write_images(source_for(PLAN, Painter()), folder)
    before = rows_of(folder)
    (folder / before[0]["file"]).unlink()
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:-30])
    done = write_images(source_for(PLAN, Painter()), folder)
    assert done.images == 10
    assert sorted(map(str, rows_of(folder))) == sorted(map(str, before))
    assert (folder / before[0]["file"]).exists()


@pytest.mark.parametrize("rest", [b"\n\n", b"\xff\xfe\n", b'"' + b"x" * 200_000, b"\0\0"])
def test_images_that_are_listed_before_damage_in_the_manifest_are_kept(tmp_path, rest):
    write_images(source_for(PLAN, Painter()), tmp_path)
    listed = rows_of(tmp_path)
    with (tmp_path / MANIFEST).open("ab") as manifest:
        manifest.write(rest)
    assert write_images(source_for(PLAN, Painter()), tmp_path).made == 0
    assert rows_of(tmp_path) == listed


@pytest.mark.parametrize("size", [0, 20, -1])
def test_a_cut_image_file_is_written_again(tmp_path, size):
    write_images(source_for(PLAN, Painter()), tmp_path)
    file = tmp_path / rows_of(tmp_path)[0]["file"]
    content = file.read_bytes()
    file.write_bytes(content[:size])
    assert write_images(source_for(PLAN, Painter()), tmp_path).made == 3  # all images of this client
    assert file.read_bytes() == content


def held(folder, form):
    """What the files of a folder hold, and the rows of its manifest."""
    files = {}
    for path in sorted({folder / row["file"] for row in rows_of(folder)}):
        if form is ImageFormat.FOLDER:
            files[path.name, path.parent.name] = path.read_bytes()
        elif form is ImageFormat.NPZ:
            with np.load(path) as arrays:
                files[path.name] = {name: (array.dtype, array.tolist()) for name, array in arrays.items()}
        else:
            files[path.name] = pq.read_table(path).to_pydict()
    return files, sorted(map(str, rows_of(folder)))


@pytest.mark.parametrize("form", ImageFormat)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_after_any_damage_the_same_images_are_there_as_before(tmp_path_factory, form, data):
    folder = tmp_path_factory.mktemp("out")
    write_images(source_for(PLAN, Painter()), folder, form)
    before = held(folder, form)
    files = sorted({row["file"] for row in rows_of(folder)})
    for _ in range(data.draw(st.integers(1, 2))):
        path, other = (folder / data.draw(st.sampled_from([*files, MANIFEST])) for _ in range(2))
        content, theirs = path.read_bytes(), other.read_bytes()
        how = data.draw(st.sampled_from(["empty", "cut", "flip", "swap", "lengthen", "remove"]))
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        if how == "swap":
            path.write_bytes(theirs)
            other.write_bytes(content)
        elif how == "flip" and content:
            flipped = content[place] ^ (1 << data.draw(st.integers(0, 7)))
            path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        elif how == "remove" and path.name != MANIFEST:
            path.unlink()
            path.write_bytes(b"") if data.draw(st.booleans()) else None
            break
        else:
            path.write_bytes({"empty": b"", "cut": content[:place], "lengthen": content + theirs}.get(how, b""))
    done = write_images(source_for(PLAN, Painter()), folder, form)
    assert done.images == PLAN.total
    assert held(folder, form) == before
    assert write_images(source_for(PLAN, Painter()), folder, form).made == 0


def test_an_image_file_that_cannot_be_written_is_named(tmp_path):
    write_images(source_for(PLAN, Painter()), tmp_path)
    file = tmp_path / rows_of(tmp_path)[0]["file"]
    file.unlink()
    file.mkdir()
    with pytest.raises(InputError, match=f"{file.name}: cannot be written"):
        write_images(source_for(PLAN, Painter()), tmp_path)


def test_clients_can_be_made_one_after_the_other(tmp_path):
    for client in ("../c", "Ulm", "a/b"):
        write_images(source_for(PLAN, Painter()), tmp_path, client=client)
    assert write_images(source_for(PLAN, Painter()), tmp_path).made == 0
    assert len(rows_of(tmp_path)) == PLAN.total


def test_a_folder_of_another_plan_or_generator_is_refused(tmp_path):
    write_images(source_for(PLAN, Painter()), tmp_path)
    other = Allocation(PLAN.n + 1, "", PLAN.clients, PLAN.classes)
    with pytest.raises(InputError, match="another plan"):
        write_images(source_for(other, Painter()), tmp_path)
    with pytest.raises(InputError, match="another format"):
        write_images(source_for(PLAN, Painter()), tmp_path, ImageFormat.NPZ)
    painter = Painter()
    painter.fingerprint = "cd" * 32
    with pytest.raises(InputError, match="another generator"):
        write_images(source_for(PLAN, painter), tmp_path)


def test_a_folder_with_files_of_others_stays_as_it_is(tmp_path):
    (tmp_path / "Ulm").mkdir()
    with pytest.raises(InputError, match="Ulm"):
        write_images(source_for(PLAN, Painter()), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["Ulm"]


@pytest.mark.parametrize("out", ["images", "images/train", "images/new", "elsewhere/../images/new", "link"])
def test_images_never_join_the_dataset_that_they_imitate(tmp_path, out):
    write_images(source_for(Allocation([[5, 5]], "", None, ["cat", "dog"]), Painter()), tmp_path / "images" / "train")
    (tmp_path / "link").symlink_to(tmp_path / "images")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="belongs to the dataset"):
        write_images(replace(source_for(PLAN, Painter()), dataset=f"folder:{tmp_path / 'images'}"), tmp_path / out)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_command_that_was_killed_before_it_wrote_a_header_can_be_repeated(tmp_path):
    (tmp_path / ".lock").touch()
    temporary(tmp_path / HEADER).touch()
    assert write_images(source_for(PLAN, Painter()), tmp_path).made == PLAN.total


def test_the_images_are_those_of_a_run(tmp_path):
    small = {"rounds": {"total": 1, "participation": 1.0}, "partition": {"clients": 3}, "train": {"steps": 1}}
    run = fedeas.run({**small, "policy": "fedeas(beta=1)", "engine": {"threads": 1}}, runs=tmp_path / "runs")
    plan = run.allocation()[1]
    done = write_images(source_for(plan, "gaussian", "digits"), tmp_path / "out", bank=tmp_path / "runs" / ".bank")
    assert (done.images, done.made) == (plan.total, 0)  # the run has made them all


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_written_plan_is_read_with_its_names(tmp_path, ending):
    counts = LabelCounts([[5, 0], [3, 4]], ["=1+1", "b,c"], ["cat", "-dog"])
    plan = fedeas.plan(counts, beta=9)
    write_allocation(tmp_path / f"plan.{ending}", counts, plan.allocation)
    again = read_allocation(tmp_path / f"plan.{ending}")
    assert np.array_equal(again.n, plan.n)
    assert (again.clients, again.classes) == (counts.clients, counts.classes)
    assert again.policy == ("" if ending == "csv" else "fedeas(beta=9)")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"clients": 3}', "client\na\n", "a,b\n1,2\n", "client,x\na,-1\n"])
def test_a_file_that_is_no_plan_is_refused(tmp_path, content):
    for ending in ("csv", "json"):
        (tmp_path / f"plan.{ending}").write_text(content)
        with pytest.raises(InputError):
            read_allocation(tmp_path / f"plan.{ending}")


def test_a_list_of_numbers_is_no_plan():
    with pytest.raises(InputError, match="not a list; make"):
        fedeas.generate([[1, 2]], "diffusion(weights=digits)")


def test_written_folders_are_datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_CACHE", str(tmp_path / "cache"))
    plan = Allocation([[5, 5], [6, 4]], "", ["ann", "bob"], ["cat", "dog"])
    write_images(source_for(plan, Painter()), tmp_path / "out")
    assert load_dataset(f"folder:{tmp_path / 'out'}").clients == ("ann", "bob")


def test_clients_whose_names_become_equal_on_disk_have_folders_of_their_own(tmp_path):
    plan = Allocation([[1, 0]] * 3, clients=["a/b", "a_b-0", "a_b"])
    write_images(source_for(plan, Painter()), tmp_path)
    files = {row["file"] for row in rows_of(tmp_path)}
    assert len(files) == len({file.split("/")[0] for file in files}) == 3
