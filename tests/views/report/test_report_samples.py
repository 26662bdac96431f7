"""The report's grid of synthetic images: those that the runs trained on, as far as the bank still has them."""

import base64
import json
import re
import shutil
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fedeas import Allocation, InputError, LabelCounts
from fedeas.config import RunConfig, load_config
from fedeas.data.sources import load_dataset
from fedeas.federation.run import execute
from fedeas.generators.bank import Bank
from fedeas.generators.base import image_index, plan_addresses
from fedeas.generators.kinds import GeneratorContext, parse_generator
from fedeas.generators.pools import KeptPool, numbers_in_pool
from fedeas.generators.quality.grid import LARGEST_SIDE, strip
from fedeas.runs.store import RunStore
from fedeas.views.report import report as write_report
from fedeas.views.report.samples import sample_grid

SIDE, CLASSES, COLUMNS = 6, 4, 10
GONE = "are not, or no longer, kept in the bank beside the runs."
PLAN = [[3, 0, 20, 0], [50, 0, 1, 2], [9, 0, 9, 0]]


class Numbered:
    """Every image is a function of its address, and all images differ."""

    num_classes, batch_size, description = CLASSES, 16, "numbered <images>"

    def __init__(self, digit="a", shape=(1, SIDE, SIDE)):
        self.fingerprint, self.shape = digit * 64, shape

    def sample(self, labels, index):
        return np.stack([self.image(*address) for address in zip(labels, index, strict=True)])

    def image(self, label, index):
        seed = [ord(self.fingerprint[0]), int(label), int(index)]
        return np.random.default_rng(seed).integers(0, 256, self.shape, dtype=np.uint8)


def trained(root, plan=PLAN, generator=None, *, kept=True, generator_spec="gaussian", **more):
    """A run in which clients 0 and 1 took part, with their images in the bank beside it."""
    generator, plan = generator or Numbered(), np.array(plan)
    run = RunStore(root).open(RunConfig(policy="fedeas", generator=generator_spec, **more))
    run.save_allocation(LabelCounts(np.full(plan.shape, 7)), Allocation(plan))
    run.append_round({"round": 1, "clients": [0, 2], "missing": [2], "accuracy": 0.4, "generated": 0})
    run.append_round({"round": 2, "clients": [1], "accuracy": 0.5, "generated": 0})
    about = {"spec": "x", "description": generator.description, "fingerprint": generator.fingerprint}
    run.write_json("generator.json", about)
    for client, row in enumerate(plan) if kept else ():
        labels = np.repeat(np.arange(len(row)), row)
        index = np.concatenate([image_index(client, int(count)) for count in row])
        Bank(root / ".bank").of(generator).sample(labels, index)
    return run


def report(*runs):
    """The text of the page, and its rows of images by class."""
    path = runs[0].path.parent / "report.html"
    write_report(runs, path)
    text = path.read_text("utf-8")
    found = re.findall(r"<span>([^<]*)</span><img src='data:image/png;base64,([^']*)'", text)
    return text, [(name, np.asarray(Image.open(BytesIO(base64.b64decode(png))))) for name, png in found]


def tiles(sheet, side=SIDE):
    """The images of a row, up to where it is white."""
    parts = [sheet[:, start : start + side] for start in range(0, sheet.shape[1], side + 1)]
    return [part for part in parts if not (part == 255).all()]


def drawn(generator, label, *addresses):
    return [generator.image(label, (client << 32) + number)[0] for client, number in addresses]


def same(shown, expected):
    return len(shown) == len(expected) and all(map(np.array_equal, shown, expected))


def test_each_class_shows_its_first_images_of_clients_that_took_part(tmp_path):
    text, rows = report(trained(tmp_path))
    assert [name for name, _ in rows] == ["0", "2", "3"]  # nobody has images of class 1
    shown = [tiles(sheet) for _, sheet in rows]
    one = Numbered()
    assert same(shown[0], drawn(one, 0, *((0, j) for j in range(3)), *((1, j) for j in range(7))))
    assert same(shown[1], drawn(one, 2, *((0, j) for j in range(10))))
    assert same(shown[2], drawn(one, 3, (1, 0), (1, 1)))
    assert "22 of the 76 synthetic images that" in text
    assert "the first images of each class in the bank, uncurated" in text
    assert "Generator: numbered &lt;images&gt;, fingerprint aaaaaaaa." in text


def test_there_is_one_grid_for_each_generator(tmp_path):
    one = trained(tmp_path, label="one")
    more = trained(tmp_path, [[0, 6, 0, 0], [60, 0, 0, 0], [0, 0, 0, 0]], label="more", seed=1)
    other = trained(tmp_path, generator=Numbered("b"), label="other", seed=2)
    text, rows = report(one, more, other)
    assert [name for name, _ in rows] == ["0", "1", "2", "3", "0", "2", "3"]
    assert text.count("uncurated") == 2
    assert "28 of the 92 synthetic images" in text  # the larger number of each client and class
    assert same(tiles(rows[4][1])[:1], drawn(Numbered("b"), 0, (0, 0)))


def test_known_classes_are_shown_by_name(tmp_path):
    generator = Numbered()
    generator.num_classes = 10
    _, rows = report(trained(tmp_path, [[1] * 10] * 3, generator, data={"dataset": "cifar10"}))
    assert [name for name, _ in rows][:3] == ["airplane", "automobile", "bird"]


def test_only_the_first_of_very_many_classes_are_shown(tmp_path):
    generator = Numbered()
    generator.num_classes = 30
    text, rows = report(trained(tmp_path, [[1] * 30] * 3, generator, data={"dataset": "folder:x"}))
    assert [name for name, _ in rows] == list(map(str, range(20)))
    assert "40 of the 60 synthetic images" in text
    assert "; 20 of 30 classes." in text


def bank_of(run):
    return run.path.parent / ".bank" / ("a" * 16)


def _header(**changes):
    def change(run):
        path = bank_of(run) / "generator.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: shutil.rmtree(run.path.parent / ".bank"),
        lambda run: Bank(run.path.parent / ".bank").prune("a" * 16),
        lambda run: (bank_of(run) / "generator.json").write_text("{"),
        lambda run: (bank_of(run) / "generator.json").unlink(),
        lambda run: [path.write_bytes(b"") for path in bank_of(run).glob("c*/*.images")],
        _header(fingerprint="a" * 16 + "b" * 48),
        _header(num_classes=9),
        _header(shape=[1, 10**6, 10**6]),
        _header(shape=[2, SIDE, SIDE // 2]),
    ],
    ids=["removed", "pruned", "header", "no header", "emptied", "another", "classes", "huge", "channels"],
)
def test_without_images_the_page_says_so_and_generates_none(tmp_path, spoil):
    run = trained(tmp_path)
    spoil(run)
    before = sorted(tmp_path.rglob("*"))
    text, rows = report(run)
    assert f"The images of numbered &lt;images&gt;, fingerprint aaaaaaaa {GONE}" in text
    assert rows == []
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "report.html"])


def test_damaged_images_are_skipped(tmp_path):
    run = trained(tmp_path)
    path = bank_of(run) / "c0" / "k0.images"
    content = bytearray(path.read_bytes())
    content[SIDE * SIDE + 8 + 3] ^= 1  # in the second image
    path.write_bytes(content)
    _, rows = report(run)
    good = [(0, 0), (0, 2), *((1, j) for j in range(8))]
    assert same(tiles(rows[0][1]), drawn(Numbered(), 0, *good))


def test_a_run_without_a_recorded_generator_has_no_grid(tmp_path):
    run = trained(tmp_path, kept=False)
    (run.path / "generator.json").unlink()
    assert "Synthetic images" not in report(run)[0]


@pytest.mark.parametrize("content", ["{", "[]", '{"fingerprint": "../../etc"}', '{"description": "x"}'])
def test_a_damaged_record_of_the_generator_is_refused(tmp_path, content):
    run = trained(tmp_path, kept=False)
    (run.path / "generator.json").write_text(content)
    with pytest.raises(InputError, match=r"generator\.json: damaged"):
        report(run)


def test_a_fingerprint_that_is_a_path_is_not_followed(tmp_path):
    run = trained(tmp_path, kept=False)
    run.write_json("generator.json", {"fingerprint": "../" + run.path.name, "description": "x"})
    assert GONE in report(run)[0]


def test_a_run_that_made_no_images_has_no_grid(tmp_path):
    assert "Synthetic images" not in report(trained(tmp_path, np.zeros((3, 4), int)))[0]


def test_the_images_are_found_from_a_relative_path(tmp_path, monkeypatch):
    run = trained(tmp_path)
    monkeypatch.chdir(run.path)
    here = type(run)(type(run.path)("."), run.config)
    write_report([here], tmp_path / "here.html")
    assert "uncurated" in (tmp_path / "here.html").read_text()


def test_a_real_run_shows_its_generators_images(tmp_path):
    small = ["rounds.total=1", "train.epochs=1", "partition.clients=5", "engine.threads=1", "policy=uniform(budget=99)"]
    run = execute(load_config(None, small), RunStore(tmp_path))
    _, rows = report(run)
    digits = load_dataset("digits")
    setting = GeneratorContext(digits.name, digits.images, digits.labels, digits.classes, "clean", "cpu")
    generator = parse_generator(run.config.generator).ready(setting)
    (client, *_), plan = sorted(run.rounds()[0]["clients"]), run.allocation()[1].n
    assert [name for name, _ in rows] == [str(label) for label in range(10)]
    for label, (_, sheet) in enumerate(rows):
        count = int(plan[client, label])
        expected = generator.sample(np.full(count, label), image_index(client, count))
        assert same(tiles(sheet, 8)[:count], list(expected[:, 0]))


@pytest.mark.parametrize("each", [0, 40])
def test_images_of_a_pool_are_shown_and_counted_once(tmp_path, each):
    """Clients take the same images of a pool, which the bank keeps under the generator that makes them."""
    inner = Numbered()
    pool = KeptPool(Bank(tmp_path / ".bank").of(inner), each)
    plan = np.array([[12, 0, 0, 0], [30, 0, 0, 2], [0, 0, 0, 0]])
    run = trained(tmp_path, plan, pool, kept=False, generator_spec=f"shared(of=gaussian, each={each})")
    numbers = set[int]()
    for client, row in enumerate(plan):
        labels, index = plan_addresses(client, row)
        pool.sample(labels, index)
        numbers |= {*numbers_in_pool(index[labels == 0], each).tolist()}
    text, rows = report(run)
    assert [name for name, _ in rows] == ["0", "3"]
    assert same(tiles(rows[0][1]), drawn(inner, 0, *((0, j) for j in sorted(numbers)[:COLUMNS])))
    assert f"12 of the {len(numbers) + 2} synthetic images that" in text
    assert np.array_equal(sample_grid(run)[:SIDE, :SIDE, 0], inner.image(0, min(numbers))[0])


def test_strips_keep_pixels_and_shrink_large_images():
    colour = np.random.default_rng(0).integers(0, 256, (3, 3, 5, 4), dtype=np.uint8)
    png, width, height = strip(colour)
    sheet = np.asarray(Image.open(BytesIO(png)))
    assert (width, height) == (COLUMNS * 5 - 1, 5) == sheet.shape[1::-1]
    for place, image in enumerate(colour):
        assert np.array_equal(sheet[:, 5 * place : 5 * place + 4], image.transpose(1, 2, 0))
    assert (sheet[:, 4::5] == 255).all() and (sheet[:, 15:] == 255).all()
    _, width, height = strip(np.zeros((2, 1, 512, 512), np.uint8))
    assert (width, height) == (COLUMNS * (LARGEST_SIDE + 1) - 1, LARGEST_SIDE)


def test_a_picture_shows_the_first_images_of_each_class_row_by_row(tmp_path):
    grid = sample_grid(trained(tmp_path))
    assert grid.shape == (3 * SIDE, COLUMNS * SIDE, 1)  # no image of class 1 was planned
    first = Numbered().image(0, image_index(0, 1)[0])
    assert np.array_equal(grid[:SIDE, :SIDE, 0], first[0])
    assert not grid[2 * SIDE :, 2 * SIDE :].any()  # class 3 has two images


def test_there_is_no_picture_without_images_in_the_bank(tmp_path):
    assert sample_grid(trained(tmp_path, kept=False)) is None
