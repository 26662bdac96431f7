"""A user's own generators are found and checked, must obey the law, and their failures are reported in one line."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from fedeas import InputError
from fedeas.core.errors import RunError, SpecError
from fedeas.generators import image_index
from fedeas.generators.custom import custom_content, load_custom

SHAPE = (1, 4, 3)
ROOT = Path(__file__).parents[2]

SOURCE = """
import numpy as np

SHAPE = (1, 4, 3)


def image(label, number):
    return np.random.default_rng((label, number)).integers(0, 256, SHAPE, dtype=np.uint8)


def good(labels, index):
    return np.stack([image(*address) for address in zip(labels, index)])


class Made:
    num_classes, shape, batch_size, fingerprint = 3, SHAPE, 2, "made-1"

    def __init__(self):
        self.sizes = []
        self.buffer = np.empty((9, *SHAPE), dtype=np.uint8)

    def sample(self, labels, index):
        self.sizes.append(len(labels))
        self.buffer[: len(labels)] = good(labels, index)
        labels[:], index[:] = 0, 0
        return self.buffer[: len(labels)]


made = Made()


def factory():
    return Made()


class Fails:
    def __init__(self):
        raise OSError("no weights\\nat all")


class Holder:
    kept = staticmethod(good)


stream = np.random.default_rng(0)


def by_call_order(labels, index):
    return stream.integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8)


def by_place(labels, index):
    return np.random.default_rng(0).integers(0, 256, (len(labels), *SHAPE), dtype=np.uint8)


def by_batch(labels, index):
    return good(labels, index) ^ np.uint8(len(labels))


def pool(labels, index):
    return np.arange(36, dtype=np.uint8).reshape(3, *SHAPE)[index]


def floats(labels, index):
    return good(labels, index) / 255


def flat(labels, index):
    return good(labels, index).reshape(len(labels), -1)


def one(labels, index):
    return good(labels, index)[:1]


def ragged(labels, index):
    return [[1], [2, 3]]


def nothing(labels, index):
    return None


def divides(labels, index):
    return 1 // 0


number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a module in it; what is imported is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_images.py").write_text(SOURCE)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def custom(name, num_classes=3, shape=SHAPE):
    return load_custom(f"python:own_images:{name}", num_classes, shape)


@pytest.mark.parametrize("name", ["good", "made", "Made", "factory", "Holder.kept"])
def test_functions_objects_and_what_makes_them(here, name):
    labels, index = np.array([2, 0, 1, 1, 2]), np.array([0, 1 << 32, 2, 3, 2**63 - 1])
    images = custom(name).sample(labels, index)
    pairs = zip(labels, index, strict=True)
    expected = [np.random.default_rng(pair).integers(0, 256, SHAPE, dtype=np.uint8) for pair in pairs]
    assert images.dtype == np.uint8
    assert np.array_equal(images, expected)
    assert (labels.max(), index[1]) == (2, 1 << 32)  # as they were, though `Made` writes to what it is given


def test_what_a_generator_tells(here):
    generator = custom("good")
    assert (generator.num_classes, generator.shape, generator.batch_size) == (3, SHAPE, 256)
    assert generator.description == "python:own_images:good"
    assert generator.sample([], []).shape == (0, *SHAPE)


def test_batches_are_no_larger_than_asked_for(here):
    generator = custom("made")
    generator.sample(np.zeros(5, dtype=int), np.arange(5))
    assert generator.batch_size == max(generator.thing.sizes) == 2  # when the law is checked too
    assert generator.thing.sizes[-3:] == [2, 2, 1]
    drawn = len(generator.thing.sizes)
    generator.sample([1], [7])
    assert len(generator.thing.sizes) == drawn + 1  # the law is checked once


def test_the_path_is_left_as_it_was(here):
    before = list(sys.path)
    custom("good")
    assert sys.path == before
    with pytest.raises(InputError):
        load_custom("python:nowhere:good", 3, SHAPE)
    assert sys.path == before


@pytest.mark.parametrize("name", ["by_call_order", "by_place", "by_batch"])
@pytest.mark.parametrize("count", [1, 10])
def test_images_that_depend_on_more_than_their_address_are_refused(here, name, count):
    with pytest.raises(InputError) as caught:
        custom(name).sample(np.ones(count, dtype=int), np.arange(count))
    told = f"python:own_images:{name} gave two images for one address, label 1 and index"
    assert str(caught.value)[: len(told)] == told
    assert str(caught.value).endswith("; seed by (label, index), not by call order")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("floats", "must give uint8 (1, 1, 4, 3), not float64 (1, 1, 4, 3)"),
        ("flat", "must give uint8 (1, 1, 4, 3), not uint8 (1, 12)"),
        ("one", "must give uint8 (4, 1, 4, 3), not uint8 (1, 1, 4, 3)"),
        ("nothing", "must give uint8 (1, 1, 4, 3), not object ()"),
        (
            "ragged",
            "must give uint8 (1, 1, 4, 3); its answer is no array (ValueError: setting an array element with a "
            "sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected shape was (2,) "
            "+ inhomogeneous part.)",
        ),
    ],
)
def test_answers_are_checked(here, name, message):
    with pytest.raises(InputError) as caught:
        custom(name).sample([0, 1], [0, 0])
    assert str(caught.value) == f"python:own_images:{name} {message}"


def test_only_addresses_that_were_asked_for_are_drawn(here):
    images = custom("pool").sample([0, 1], [2, 0])
    assert images[:, 0, 0, 0].tolist() == [24, 0]
    assert custom("pool").sample([0], [2]).shape == (1, *SHAPE)


def test_later_answers_are_checked_too(here):
    generator = custom("good")
    generator.sample([0], [0])
    generator.thing = lambda labels, index: np.zeros((1, 2), dtype=np.uint8)
    with pytest.raises(InputError, match=r"not uint8 \(1, 2\)"):
        generator.sample([0], [0])


def test_failures_keep_their_cause(here):
    with pytest.raises(RunError) as caught:
        custom("divides").sample([0], [0])
    assert str(caught.value).startswith("python:own_images:divides failed with ZeroDivisionError: integer division")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RunError, match=r"python:own_images:Fails failed with OSError: no weights$"):
        custom("Fails")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("python:nowhere.images:good", "no module nowhere in {} nor among the installed ones"),
        ("python:own_images.deeper:good", "no module own_images.deeper in {} nor among the installed ones"),
        ("python:own_images:bad", "module own_images has no bad"),
        ("python:own_images:good.better", "module own_images has no good.better"),
        ("python:needs_more:good", "importing needs_more failed with ModuleNotFoundError: No module named 'not_there'"),
        ("python:broken:good", "importing broken failed with SyntaxError: invalid syntax (broken.py, line 1)"),
    ],
)
def test_what_is_not_found_is_named(here, spec, message):
    (here / "needs_more.py").write_text("import not_there\n")
    (here / "broken.py").write_text("def good(:\n")
    with pytest.raises(InputError) as caught:
        load_custom(spec, 3, SHAPE)
    assert str(caught.value) == f"{spec}: {message.format(here)}"


@pytest.mark.parametrize("spec", ["python:", "python:good", "python::good", "python:a:b:c", "python:../a:b", "x:a:b"])
def test_malformed_specs_are_refused(spec):
    with pytest.raises(SpecError) as caught:
        load_custom(spec, 3, SHAPE)
    expected = "expected python:module:name, as in python:package.module:function"
    assert str(caught.value) == f"generator spec {spec!r}: {expected}"


def test_what_is_no_generator_is_refused(here):
    with pytest.raises(InputError, match="python:own_images:number is of type int; name a function or a generator"):
        custom("number")
    with pytest.raises(InputError, match="has num_classes 3, but the data have 10"):
        custom("made", num_classes=10)
    with pytest.raises(InputError, match=r"has shape \(1, 4, 3\), but the data have \(3, 32, 32\)"):
        custom("made", shape=(3, 32, 32))
    with pytest.raises(InputError, match="label 3 is not between 0 and 2"):
        custom("good").sample([3], [0])


def test_attributes_of_the_wrong_kind_are_refused(here):
    generator = custom("made")
    generator.thing.batch_size, generator.thing.fingerprint = 0, 7
    with pytest.raises(InputError, match="its batch_size must be a whole number from 1 on, not 0"):
        generator.sample([0], [0])
    with pytest.raises(InputError, match="its fingerprint must be text, not 7"):
        _ = generator.fingerprint


def forget(*names):
    """As if the process had begun anew."""
    for name in names:
        del sys.modules[name]


def test_the_fingerprint_follows_source_name_shape_and_classes(here):
    first, own = custom("good").fingerprint, custom("made").fingerprint
    others = [custom("flat"), custom("good", num_classes=4), custom("good", shape=(1, 3, 4))]
    assert len({first, *(other.fingerprint for other in others)}) == 4
    assert custom("good").fingerprint == first
    (here / "own_images.py").write_text(SOURCE + "\n# changed\n")
    forget("own_images")
    assert custom("good").fingerprint != first
    assert custom("made").fingerprint == own  # it has one of its own
    changed = custom("Made")
    changed.thing.fingerprint = "made-2"
    assert changed.fingerprint != custom("Made").fingerprint


def test_the_code_of_a_factory_counts_wherever_it_is_named_and_whatever_it_makes(here):
    (here / "made_here.py").write_text(SOURCE)
    (here / "factory.py").write_text("import made_here\ndef make():\n    return made_here.good\n")
    (here / "shop.py").write_text("from factory import make\n")
    first = load_custom("python:shop:make", 3, SHAPE).fingerprint
    (here / "factory.py").write_text("import made_here\ndef make():\n    return made_here.flat\n")
    forget("shop", "factory", "made_here")
    assert load_custom("python:shop:make", 3, SHAPE).fingerprint != first


def test_a_function_named_elsewhere_is_followed_home(here):
    (here / "names.py").write_text("from own_images import good\n")
    first = load_custom("python:names:good", 3, SHAPE).fingerprint
    (here / "own_images.py").write_text(SOURCE + "\n# changed\n")
    forget("names", "own_images")
    assert load_custom("python:names:good", 3, SHAPE).fingerprint != first


@pytest.mark.parametrize("name", ["good", "made", "Made"])
@pytest.mark.parametrize("use", [lambda spec: load_custom(spec, 3, SHAPE), custom_content])
def test_code_that_was_edited_after_its_import_is_refused(here, name, use):
    """Else the old code would run under the hash of the new."""
    spec = f"python:own_images:{name}"
    use(spec)
    (here / "own_images.py").write_text(SOURCE + "\n# changed\n")
    with pytest.raises(InputError) as caught:
        use(spec)
    message = f"{spec}: {here / 'own_images.py'} has changed since it was imported; restart to use what it is now"
    assert str(caught.value) == message
    (here / "own_images.py").write_text(SOURCE)
    use(spec)  # it is again what was imported


def test_a_function_whose_home_was_edited_is_refused(here):
    (here / "names.py").write_text("from own_images import good\n")
    custom_content("python:names:good")
    (here / "own_images.py").write_text(SOURCE + "\n# changed\n")
    with pytest.raises(InputError, match=r"own_images\.py has changed since it was imported"):
        custom_content("python:names:good")


def test_code_that_was_reloaded_is_what_it_is_now(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    before = custom_content("python:own_images:good")
    (here / "own_images.py").write_text(SOURCE + "\nSHAPE = (1, 2, 2)\n")
    importlib.reload(sys.modules["own_images"])
    assert custom_content("python:own_images:good") != before
    assert custom("good", shape=(1, 2, 2)).sample([0], [0]).shape == (1, 1, 2, 2)


def test_the_content_follows_the_rule_of_the_fingerprint(here):
    names = ("good", "flat", "Holder.kept", "made", "Made", "factory")
    contents = {name: custom_content(f"python:own_images:{name}") for name in names}
    assert contents["good"] == contents["flat"] == contents["Holder.kept"]  # of one module
    assert contents["made"] == contents["Made"] == contents["factory"] != contents["good"]  # have one of their own
    with pytest.raises(InputError, match="has no source file; give it a fingerprint attribute"):
        custom_content("python:builtins:pow")


def test_a_class_with_a_fingerprint_is_not_made_for_its_content(here):
    (here / "large.py").write_text("class Large:\n    fingerprint = 'v1'\n    def __init__(self):\n        1 // 0\n")
    assert len(custom_content("python:large:Large")) == 64


def test_what_has_no_source_needs_a_fingerprint():
    generator = load_custom("python:builtins:pow", 3, SHAPE)
    with pytest.raises(InputError, match="python:builtins:pow has no source file; give it a fingerprint attribute"):
        _ = generator.fingerprint


def test_the_example_works_from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    generator = load_custom("python:examples.custom_generator:stripes", 10, (1, 8, 8))
    labels = np.repeat(np.arange(10), 20)
    images = generator.sample(labels, np.tile(image_index(client=1, count=20), 10))
    assert len(np.unique(images.reshape(200, -1), axis=0)) == 200
    assert len(generator.fingerprint) == 64


def test_the_example_says_how_to_call_it():
    text = (ROOT / "examples" / "custom_generator.py").read_text()
    assert "fedeas run digits generator=python:examples.custom_generator:stripes" in text
