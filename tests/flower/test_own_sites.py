"""Clients with their own data, a server without training data, and a generator that comes as a file."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)

from flower.grids import StraightGrid
from flwr.app import Context, RecordDict

from fedeas.cli import main
from fedeas.config import load_config
from fedeas.core.errors import InputError, RunError
from fedeas.data.sources import load_dataset
from fedeas.federation.run import execute, identified
from fedeas.flower.app import run_on, serve
from fedeas.flower.client import Participant
from fedeas.flower.node_settings import NodeSettings, TellableError, read_node_config
from fedeas.flower.wire import About
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.generators.quality.classifier import Classifier
from fedeas.runs.store import RunStore

CLIENTS, POLICY = 2, "fedeas(beta=2)"
CLASSES_OF = {0: (0, 1, 2), 1: (2, 3)}
"""The classes that each client has."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A server's test set, two clients' own data with some of the classes, and generators as files."""
    folder, digits = tmp_path_factory.mktemp("sites"), load_dataset("digits")
    held = digits.test_labels < 4
    classes = np.array(digits.classes[:4])
    np.savez(folder / "server.npz", test_images=digits.test_images[held], test_labels=digits.test_labels[held],
             classes=classes, mean=[0.3], std=[0.35])  # fmt: skip
    for client, kept in CLASSES_OF.items():
        mine = np.flatnonzero(np.isin(digits.labels, kept))[client::40]
        np.savez(folder / f"{client}.npz", images=digits.images[mine], labels=digits.labels[mine], classes=classes)
    public = digits.labels < 4
    images, labels = digits.images[public], digits.labels[public]
    GaussianGenerator.fit(images, labels, 4, 8, class_names=classes).save(folder / "gaussian.safetensors")
    GaussianGenerator.fit(images, labels, 4, 4, class_names=classes).save(folder / "another.safetensors")
    Classifier.train(images, labels, 4, epochs=1).save(folder / "judge.safetensors")
    return folder


def config(site, *more):
    base = ["engine.name=flower", f"data.dataset=npz:{site}/server.npz", "partition.scheme=own", "rounds.total=1",
            f"partition.clients={CLIENTS}", "rounds.participation=1.0", "train.epochs=1", "engine.threads=1",
            "engine.timeout=0.3", f"policy={POLICY}"]  # fmt: skip
    return load_config(None, [*base, *more])


class Sites(StraightGrid):
    """Nodes with their own data."""

    site = None

    def delivered(self, message):
        who = next(each for each in range(self.clients) if self.node(each) == message.metadata.dst_node_id)
        mine = {"data": f"npz:{self.site}/{who}.npz", "policies": POLICY}
        before, self.node_config = self.node_config, mine | self.node_config
        try:
            return super().delivered(message)
        finally:
            self.node_config = before


def run(tmp_path, site, *settings, **node_config):
    grid = Sites(
        tmp_path / "nodes", CLIENTS, node_config={key.replace("_", "-"): value for key, value in node_config.items()}
    )
    grid.site = site
    return run_on(grid, config(site, *settings), RunStore(tmp_path / "runs"))


def trained_rounds(tmp_path):
    return [line for path in (tmp_path / "runs").rglob("rounds.jsonl") for line in path.read_text().splitlines()]


GENERATORS = [
    'gaussian(weights="{}/gaussian.safetensors")',
    'shared(of=gaussian(weights="{}/gaussian.safetensors"))',
    'agreeing(of=gaussian(weights="{0}/gaussian.safetensors"), classifier="{0}/judge.safetensors")',
]


@pytest.mark.parametrize("generator", GENERATORS, ids=["gaussian", "shared", "agreeing"])
def test_a_federation_needs_no_training_data_on_the_server_and_not_every_class_on_a_client(tmp_path, site, generator):
    done = run(tmp_path, site, f"generator={generator.format(site)}")
    assert done.finished
    assert done.summary()["total"] > 0
    assert done.rounds()[0]["clients"] == [0, 1]


def test_generators_of_code_and_diffusion_need_no_images_of_a_class():
    from fedeas.generators.kinds import parse_generator

    without = ["diffusion", "sd_turbo", "python:mine:make", "gaussian(weights=mine)", "shared(of=diffusion)"]
    fitted = ["gaussian", "shared(of=gaussian)", "agreeing(of=diffusion)", "held-out"]
    assert [parse_generator(text).is_fitted for text in (*without, *fitted)] == [False] * 5 + [True] * 4


def test_a_generator_that_would_be_fitted_to_a_clients_data_is_refused_before_the_first_round(tmp_path, site):
    with pytest.raises(RunError, match=r"may lack classes; use one that comes as a file.* gaussian\(weights=FILE\)"):
        run(tmp_path, site, "generator=gaussian")
    assert trained_rounds(tmp_path) == []


def test_that_refusal_says_nothing_about_the_labels(tmp_path, site):
    """It is the same for a client that has every class."""
    digits, about = load_dataset("digits"), About.of(load_dataset("digits"))
    told = []
    for kept in (10, 3):
        mine = np.flatnonzero(digits.labels < kept)[:200]
        np.savez(tmp_path / f"{kept}.npz", images=digits.images[mine], labels=digits.labels[mine])
        node = NodeSettings(
            tmp_path, data=f"npz:{tmp_path}/{kept}.npz", policies=(load_config(None, [f"policy={POLICY}"]).policy,)
        )
        with pytest.raises(TellableError) as error:
            Participant(load_config(None, [f"policy={POLICY}", "partition.clients=2"]), 0, about, node).introduce()
        told.append(str(error.value))
    assert told[0] == told[1]


def test_an_owner_may_choose_a_fitted_generator_if_every_class_is_there(tmp_path, site, caplog):
    with pytest.raises(RunError, match=r"could not do its part; its node's log has the reason"):
        run(tmp_path, site, "generator=gaussian", generator="gaussian(components=4)")
    assert "needs images of every class" in caplog.text


def test_the_server_says_that_a_run_was_finished_before_though_a_clients_data_have_changed(tmp_path, site, caplog):
    caplog.set_level("INFO")
    mine = tmp_path / "sites"
    mine.mkdir()
    for client in range(CLIENTS):
        (mine / f"{client}.npz").write_bytes((site / f"{client}.npz").read_bytes())
    grid = Sites(tmp_path / "nodes", CLIENTS)
    grid.site = mine
    asked = config(site, f"generator={GENERATORS[0].format(site)}")
    context = Context(1, 0, {}, RecordDict(), {"settings": asked.model_dump_json(), "runs": str(tmp_path / "runs")})
    serve(grid, context)
    assert "was finished before" not in caplog.text
    (mine / "0.npz").write_bytes((site / "1.npz").read_bytes())
    serve(grid, context)
    assert "was finished before, only shown; remove this folder" in caplog.text
    shutil.rmtree(tmp_path / "runs")
    caplog.clear()
    serve(grid, context)
    assert "was finished before" not in caplog.text


# ---- the classes of a client's data


def introduced(tmp_path, run, **names):
    """A client with one image of label 2, and own names of classes or none, in a run with these classes."""
    np.savez(tmp_path / "own.npz", images=np.zeros((1, 8, 8), np.uint8), labels=[2], **names)
    node = NodeSettings(tmp_path, data=f"npz:{tmp_path}/own.npz", policies=("no-generation",))
    known = load_config(None, ["policy=no-generation", "partition.clients=2"])
    client = Participant(known, 0, About((1, 8, 8), run, (0.5,), (0.5,)), node)
    client.introduce()
    return client


def test_a_clients_counts_are_by_name_and_without_names_by_number(tmp_path):
    classes = ("0", "1", "10", "2")
    assert introduced(tmp_path, classes, classes=["0", "1", "2"]).counts.tolist() == [0, 0, 0, 1]
    assert introduced(tmp_path, classes).counts.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(("classes", "warned"), [(("0", "1", "10", "2"), True), (("ant", "bee", "cow"), False)])
def test_a_nodes_log_warns_of_labels_that_are_names_of_other_classes(tmp_path, caplog, classes, warned):
    introduced(tmp_path, classes)
    assert ("label 2 is class 10" in caplog.text) is warned


# ---- a generator as a file


def test_a_node_may_have_the_runs_generator_in_another_place(tmp_path, site):
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes((site / "gaussian.safetensors").read_bytes())
    generator = f"generator={GENERATORS[0].format(site)}"
    here, there = (run(tmp_path / name, site, generator, **own) for name, own in
                   {"here": {}, "there": {"generator_file": str(copy)}}.items())  # fmt: skip
    assert here.rounds()[0]["accuracy"] == there.rounds()[0]["accuracy"]
    assert here.summary()["fingerprint"] == there.summary()["fingerprint"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [("another.safetensors", "its generator differs from the run's"), ("none.safetensors", "is not on its node")],
)
def test_another_generator_than_agreed_ends_the_run_before_its_first_round(tmp_path, site, file, reason):
    with pytest.raises(RunError, match=reason):
        run(tmp_path, site, f"generator={GENERATORS[0].format(site)}", generator_file=str(site / file))
    assert trained_rounds(tmp_path) == []


def test_a_generator_file_needs_a_generator_that_is_a_file(tmp_path, site):
    with pytest.raises(
        RunError, match=r"generator-file in its node's config: generator sd-turbo.* does not come as a file"
    ):
        run(tmp_path, site, "generator=sd_turbo", generator_file=str(site / "another.safetensors"))
    with pytest.raises(TellableError, match="keep one"):
        read_node_config({"partition-id": 0, "generator": "gaussian", "generator-file": "a"})


@pytest.mark.parametrize(
    "generator", ["gaussian(weights={})", "shared(of=gaussian(weights={}))", "diffusion(weights=digits)"]
)
def test_a_generator_file_for_other_classes_ends_the_run_before_its_first_round(tmp_path, site, generator, caplog):
    digits, file = load_dataset("digits"), tmp_path / "ten.safetensors"
    GaussianGenerator.fit(digits.images, digits.labels, 10, 4).save(file)
    grid = Sites(tmp_path / "nodes", CLIENTS)
    grid.site = site
    with pytest.raises(RunError, match="file cannot make the run's classes and images"):
        run_on(grid, config(site, f"generator={generator.format(json.dumps(str(file)))}"), RunStore(tmp_path / "runs"))
    assert {action for action, _ in grid.log} == {"query.hello"}
    assert "make 10 classes" in caplog.text


def test_a_fitted_generator_is_written_by_a_command(tmp_path):
    with pytest.raises(SystemExit, match="0"):
        main(["generator", "fit", "digits", "--out", str(tmp_path / "new" / "g.safetensors"), "--components", "4"])
    assert GaussianGenerator.load(tmp_path / "new" / "g.safetensors").class_names == tuple("0123456789")


# ---- where own data are not


def test_a_run_whose_clients_bring_their_data_needs_nodes(tmp_path, site):
    here = config(site, "engine.name=fast")
    with pytest.raises(InputError, match="start it with `fedeas flower run`"):
        execute(here, RunStore(tmp_path))


def test_a_node_without_data_is_refused(tmp_path, site):
    grid = StraightGrid(tmp_path / "nodes", CLIENTS)
    with pytest.raises(RunError, match="bring their own data; set data in its node's config"):
        run_on(grid, config(site), RunStore(tmp_path / "runs"))


def test_the_identity_of_such_a_run_is_its_test_set_and_its_number_of_clients(site):
    known = identified(config(site))
    assert known.fingerprint == identified(config(site, "partition.seed=7", "partition.alpha=3.0")).fingerprint
    assert known.fingerprint != identified(config(site, "partition.clients=3")).fingerprint
    assert json.loads(known.model_dump_json())["partition"]["scheme"] == "own"


def test_a_node_without_samples_is_named_and_its_log_names_the_file(tmp_path, site, caplog):
    full, mine = np.load(site / "1.npz"), tmp_path / "sites"
    mine.mkdir()
    (mine / "0.npz").write_bytes((site / "0.npz").read_bytes())
    np.savez(mine / "1.npz", images=full["images"][:0], labels=full["labels"][:0], classes=full["classes"])
    grid = Sites(tmp_path / "nodes", CLIENTS)
    grid.site = mine
    with pytest.raises(RunError, match=rf"client 1 \(node {grid.node(1)}\)") as told:
        run_on(grid, config(site, f"generator={GENERATORS[0].format(site)}"), RunStore(tmp_path / "runs"))
    assert str(mine) not in str(told.value)
    assert f"{mine / '1.npz'}: the training part is empty" in caplog.text
    assert trained_rounds(tmp_path) == []
