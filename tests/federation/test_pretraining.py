"""Initial weights from central training: the content of the file, how it is found, and a second call."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedeas.algorithms.base import MODEL
from fedeas.config import load_config
from fedeas.core.errors import InputError, RunError
from fedeas.core.provenance import Seen, data_digest, seen_by
from fedeas.data.sources import load_dataset
from fedeas.federation import pretraining
from fedeas.federation.checkpoint import load_checkpoint
from fedeas.federation.pretraining import default_file, last_model, pretrain, pretraining_config, provenance
from fedeas.federation.run import execute
from fedeas.models.build import build_model
from fedeas.runs.store import RunStore

SHAPE = (1, 8, 8)


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDEAS_WEIGHTS", "weights")
    monkeypatch.setattr("fedeas.cli.progress.LONG", float("inf"))  # no announcement, however busy the machine is
    return partial(run, "pretrain")


def digits(epochs=2, **settings):
    return pretraining_config("digits", epochs, device="cpu", **settings)


def final_model(run):
    """The server's model in the checkpoint."""
    rounds, server, _ = load_checkpoint(run.checkpoint, run.config.fingerprint)
    assert rounds == run.config.rounds.total
    return {key.removeprefix(MODEL): tensor for key, tensor in server.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def halves(tensors):
    return {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_file_is_the_last_model_of_its_run_and_says_where_it_comes_from(run, tmp_path):
    code, out, err = run("digits", "--epochs", 2, "--device", "cpu", "--out", "new/w.safetensors")
    (made,) = RunStore(tmp_path / "runs").all()
    path, about = tmp_path / "new" / "w.safetensors", provenance(tmp_path / "new" / "w.safetensors")
    accuracy = about["accuracy"]
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith(f"new/w.safetensors: test accuracy {accuracy:.2%} after 2 epochs on digits")
    assert same(load_file(path), halves(final_model(made)))
    assert about["run"] == made.config.fingerprint
    assert (about["dataset"], about["protocol"], about["epochs"]) == ("digits", "clean", 2)
    assert accuracy == pytest.approx(made.rounds()[-1]["accuracy"], abs=0.01)
    assert sorted(file.name for file in path.parent.iterdir()) == ["w.safetensors"]


def test_the_one_client_trains_on_all_training_images_once_an_epoch_at_a_falling_rate(tmp_path):
    data = load_dataset("digits")
    made = execute(digits(), RunStore(tmp_path))
    assert np.array_equal(made.allocation()[0].n, [np.bincount(data.labels)])
    assert [record["clients"] for record in made.rounds()] == [[0], [0]]
    assert [record["steps"] for record in made.rounds()] == [math.ceil(len(data.labels) / 128)] * 2
    constant = digits().model_copy(update={"train": digits().train.model_copy(update={"schedule": "constant"})})
    other = execute(constant, RunStore(tmp_path))
    first, last = ([made.rounds()[i]["train_loss"], other.rounds()[i]["train_loss"]] for i in (0, 1))
    assert first[0] == first[1]  # the rate is whole in the first epoch
    assert last[0] != last[1]


def test_pretraining_learns(tmp_path):
    about = pretrain(digits(epochs=8), tmp_path / "w.safetensors", RunStore(tmp_path))
    assert about["accuracy"] > 0.6  # mirrored digits are hard to tell apart


def test_a_second_call_changes_nothing(run, tmp_path):
    arguments = ("digits", "--epochs", 2, "--device", "cpu")
    _, first, _ = run(*arguments)
    before = contents(tmp_path)
    code, again, _ = run(*arguments)
    assert code == 0
    assert again == first.splitlines(keepends=True)[-1].replace(": test", " exists already: test")
    assert contents(tmp_path) == before
    assert default_file("digits").exists()  # that is where it goes by default


def test_from_a_finished_run_the_file_is_written_without_training(tmp_path):
    store, seen = RunStore(tmp_path / "runs"), []
    pretrain(digits(), tmp_path / "a.safetensors", store)
    pretrain(digits(), tmp_path / "b.safetensors", store, seen.append)
    assert seen == []
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


class BrokenOffError(Exception):
    pass


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("fedeas.federation.checkpoint.SHARE", float("inf"))  # the state is kept after every round
    path, store, epochs = tmp_path / "w.safetensors", RunStore(tmp_path / "broken"), []

    def stop(record):
        epochs.append(record["round"])
        if record["round"] == 2:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        pretrain(digits(epochs=4), path, store, stop)
    assert not path.exists()
    pretrain(digits(epochs=4), path, store, lambda record: epochs.append(record["round"]))
    assert epochs == [1, 2, 3, 4]
    pretrain(digits(epochs=4), tmp_path / "whole.safetensors", RunStore(tmp_path / "whole"))
    assert same(load_file(path), load_file(tmp_path / "whole.safetensors"))


@pytest.mark.parametrize("there", ["another run", "a generator", "no tensors"])
def test_existing_weights_are_not_replaced(run, tmp_path, there):
    path = tmp_path / "w.safetensors"
    if there == "another run":
        run("digits", "--epochs", 1, "--device", "cpu", "--seed", 1, "--out", path)
    elif there == "a generator":
        save_file({"x": torch.zeros(1)}, path, {"fedeas": '{"format": "fedeas-diffusion-1"}'})
    else:
        path.write_bytes(b"no tensors")
    before = contents(tmp_path)
    code, out, err = run("digits", "--epochs", 1, "--device", "cpu", "--out", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {path}: ")
    assert "other weights are there already" in err or "not a readable .safetensors file" in err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digits", "--out", "w.pth"), "w.pth: weights are written as .safetensors files; choose such a name"),
        (("digits", "--out", "taken/w.safetensors"), "taken: cannot be created (File exists)"),
        (("magic",), "unknown dataset 'magic'"),
        (("digits", "--device", "abacus"), "device 'abacus' cannot be used"),
    ],
)
def test_invalid_arguments_are_refused_before_training(run, tmp_path, arguments, message):
    (tmp_path / "taken").write_text("a file")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_for_another_number_of_classes_all_but_the_head_is_loaded(tmp_path):
    path = tmp_path / "w.safetensors"
    pretrain(digits(), path, RunStore(tmp_path))
    trained = {name: tensor.float() for name, tensor in load_file(path).items()}
    fresh = build_model("small-cnn", SHAPE, 3, seed=5).state_dict()
    model = build_model("small-cnn", SHAPE, 3, seed=5, weights=path).state_dict()
    heads = {"head.weight", "head.bias"}
    assert heads < model.keys() == trained.keys()
    assert all(torch.equal(model[name], (fresh if name in heads else trained)[name]) for name in model)
    assert not any(torch.equal(fresh[name], trained[name]) for name in model.keys() - heads)


def test_a_run_starts_from_the_weights_it_names(run, tmp_path):
    """At a tiny learning rate the model after a round is almost that of the broadcast."""
    run("digits", "--epochs", 2, "--device", "cpu")
    still = ["partition.clients=4", "rounds.total=1", "train.epochs=1", "train.lr=1e-12"]
    named = execute(load_config(None, [*still, "model.weights=digits-pretrained"]), RunStore(tmp_path / "runs"))
    scratch = execute(load_config(None, still), RunStore(tmp_path / "runs"))
    trained = {name: tensor.float() for name, tensor in load_file(default_file("digits")).items()}
    for name, tensor in final_model(named).items():
        torch.testing.assert_close(tensor, trained[name], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(final_model(scratch)["head.weight"], trained["head.weight"], atol=1e-2)
    assert named.rounds()[0]["accuracy"] == pytest.approx(provenance(default_file("digits"))["accuracy"], abs=0.005)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("cifar100", "cifar100"),
        ("hub:owner/my.name", "hub-owner-my-name"),
        (f"npz:/{'x' * 90}.npz", f"npz-{'x' * 90}-npz"),
    ],
)
def test_every_dataset_has_a_name_for_its_weights_and_its_run(dataset, name):
    assert default_file(dataset).name == f"{name}-pretrained.safetensors"
    assert default_file(dataset, "imagenet").name == f"{name}-imagenet-stem.safetensors"
    assert pretraining_config(dataset, device="cpu").label == f"pretrain-{name}"[:61]
    assert pretraining_config(dataset, device="cpu", stem="imagenet").label == f"pretrain-{name}-imagenet-stem"[:61]


@pytest.fixture
def tiny(tmp_path):
    """Forty photographs, dark and light."""
    labels = np.arange(40) % 2
    noise = np.random.default_rng(0).integers(0, 100, (40, 3, 16, 16))
    images = (100 * labels[:, None, None, None] + noise).astype(np.uint8)
    np.savez(tmp_path / "tiny.npz", images=images, labels=labels, test_images=images[::2], test_labels=labels[::2])
    return tmp_path / "tiny.npz"


def test_a_resnet_with_the_stem_of_imagenet_is_pretrained_and_starts_a_run(run, tmp_path, tiny):
    code, _, err = run("npz:tiny.npz", "--stem", "imagenet", "--epochs", 1, "--device", "cpu")
    path = tmp_path / "weights" / "npz-tiny-npz-imagenet-stem.safetensors"
    assert (code, err) == (0, "")
    tensors = load_file(path)
    assert tensors["conv1.weight"].shape == (64, 3, 7, 7)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16, torch.int64}
    assert path.stat().st_size < 23e6
    settings = ["data.dataset=npz:tiny.npz", "model.stem=imagenet", "model.weights=npz-tiny-npz-imagenet-stem"]
    still = ["partition.clients=2", "partition.scheme=iid", "rounds.total=1", "train.epochs=1", "train.lr=1e-12"]
    made = execute(load_config(None, [*settings, *still]), RunStore(tmp_path / "runs"))
    torch.testing.assert_close(final_model(made)["fc.weight"], tensors["fc.weight"].float())


def test_the_recorded_accuracy_is_that_of_the_rounded_weights(tmp_path, monkeypatch):
    """Weights that are rounded to zero cannot recognise any digit."""
    monkeypatch.setattr(pretraining, "last_model", lambda run: {n: 0 * t for n, t in final_model(run).items()})
    about = pretrain(digits(), tmp_path / "w.safetensors", RunStore(tmp_path))
    test_labels = load_dataset("digits").test_labels
    assert about["accuracy"] == (test_labels == 0).mean()


def test_numbers_that_half_precision_cannot_hold_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"w: a has numbers that float16 cannot hold; train with another seed or rate"):
        pretraining.halved({"a": torch.tensor([1.0, 1e6])}, tmp_path / "w")


def test_the_file_records_which_images_were_seen(tmp_path):
    pretrain(digits(epochs=1), tmp_path / "w.safetensors", RunStore(tmp_path))
    data = load_dataset("digits")
    assert seen_by(tmp_path / "w.safetensors") == Seen("digits", ("train",), data_digest(data.images, data.labels))


def test_the_images_of_the_start_weights_stay_in_the_record(tmp_path):
    pretrain(digits(epochs=1), tmp_path / "a.safetensors", RunStore(tmp_path))
    model = digits().model.model_copy(update={"weights": str(tmp_path / "a.safetensors")})
    config = digits(epochs=1).model_copy(update={"model": model})
    pretrain(config, tmp_path / "b.safetensors", RunStore(tmp_path))
    first = seen_by(tmp_path / "a.safetensors")
    assert seen_by(tmp_path / "b.safetensors") == Seen("digits", ("train",), first.data, first)


@pytest.mark.parametrize("content", [None, b"half a check"], ids=["lost", "damaged"])
def test_a_finished_run_without_a_readable_checkpoint_must_be_run_again_as_a_whole(tmp_path, content):
    done = RunStore(tmp_path).open(digits())
    done.write_json("summary.json", {"rounds": 0})
    if content is not None:
        done.checkpoint.write_bytes(content)
    with pytest.raises(InputError, match=r"checkpoint\.safetensors: .*; .*remove the run's folder"):
        last_model(done)
