"""Training: laws of one update and of many, resuming an interrupted training, and what is refused."""

import logging
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas.core.errors import InputError, RunError
from fedeas.core.locks import locked
from fedeas.generators.diffusion import training as module
from fedeas.generators.diffusion.presets import Network, Preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.training import GENERATOR, LOCK, STATE, train
from fedeas.generators.diffusion.updates import CLASSES
from fedeas.generators.diffusion.weights import Weights

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

TINY = Network((8, 16), layers=1, attention=(False, False), groups=4)
RECIPE = Preset(TINY, batch=8, updates=8, lr=1e-2, ema=0.6, warm_up=2, steps=3)
RNG = np.random.default_rng(0)
LABELS = np.arange(12) % 2
IMAGES = RNG.integers(0, 256, (12, 1, 4, 4), dtype=np.uint8)


def trainer_of(recipe=RECIPE, images=IMAGES, labels=LABELS, names=("a", "b"), **options):
    return Trainer(images, labels, names, recipe, **options)


def updated(trainer, count):
    for _ in range(count):
        trainer.update()
    return trainer


def assert_same_state(one, other):
    """Weights, averages, moments, random stream and counters; the running loss is only for show."""
    first, second = one._tensors(), other._tensors()
    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first if name != "loss")
    assert (one.update_number, one.images_seen) == (other.update_number, other.images_seen)
    assert one.ema.optimization_step == other.ema.optimization_step
    assert one.averaged().fingerprint == other.averaged().fingerprint


def test_the_same_seed_gives_the_same_weights():
    around = torch.get_rng_state()
    first = updated(trainer_of(seed=3), 4)
    torch.rand(5)  # the stream of everybody else
    assert_same_state(first, updated(trainer_of(seed=3), 4))
    assert first.averaged().fingerprint != updated(trainer_of(seed=4), 4).averaged().fingerprint
    torch.set_rng_state(around)
    updated(first, 1)
    assert torch.equal(torch.get_rng_state(), around)


@settings(max_examples=4)
@given(st.integers(0, 7))
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path_factory, stop):
    path = tmp_path_factory.mktemp("state") / STATE
    updated(trainer_of(), stop).save(path)
    resumed = trainer_of()
    resumed.restore(path)
    assert_same_state(updated(resumed, 8 - stop), updated(trainer_of(), 8))


def test_an_interrupted_training_resumes(tmp_path):
    def interrupt(progress):
        if progress.update >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trainer_of(), tmp_path, on_look=interrupt)
    assert Weights.load(tmp_path / GENERATOR).provenance["updates"] >= 3
    resumed = trainer_of()
    train(resumed, tmp_path)
    assert_same_state(resumed, updated(trainer_of(), 8))


def test_an_interruption_within_an_update_keeps_the_state(tmp_path, monkeypatch):
    trainer, real = trainer_of(), Trainer._loss

    def interrupted(self):
        if self.update_number == 3:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(Trainer, "_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(trainer, tmp_path)
    assert Weights.load(tmp_path / GENERATOR).finite
    monkeypatch.undo()
    resumed = trainer_of()
    resumed.restore(tmp_path / STATE)
    assert resumed.update_number == 3
    assert train(resumed, tmp_path).provenance["updates"] == 8


def test_the_time_limit_leaves_a_usable_generator(tmp_path):
    weights = train(trainer_of(replace(RECIPE, updates=10**6)), tmp_path, minutes=0.5 / 60, provenance={"dataset": "x"})
    assert 0 < weights.provenance["updates"] < 10**6
    assert weights.provenance["images"] == 8 * weights.provenance["updates"]
    loaded = Weights.load(tmp_path / GENERATOR)
    assert loaded.fingerprint == weights.fingerprint
    assert loaded.provenance == weights.provenance
    assert DiffusionGenerator(loaded).sample([0, 1], [5, 6]).shape == (2, 1, 4, 4)
    more = train(trainer_of(replace(RECIPE, updates=10**6)), tmp_path, minutes=0.5 / 60)
    assert more.provenance["updates"] > weights.provenance["updates"]


def test_a_time_limit_of_zero_still_leaves_a_generator(tmp_path):
    assert train(trainer_of(), tmp_path, minutes=0).provenance["updates"] == 0
    assert DiffusionGenerator(Weights.load(tmp_path / GENERATOR)).sample([1], [0]).shape == (1, 1, 4, 4)


def test_a_finished_training_is_left_as_it_is(tmp_path):
    looks = []
    first = train(trainer_of(), tmp_path, on_look=looks.append)
    assert looks[-1].update == looks[-1].updates == 8
    assert looks[-1].images == 64
    again = train(trainer_of(), tmp_path, on_look=lambda look: pytest.fail("nothing was left to do"))
    assert again.fingerprint == first.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, GENERATOR, STATE]


def test_state_and_generator_are_saved_from_time_to_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    saved = []
    train(trainer_of(), tmp_path, on_save=lambda weights: saved.append(weights.provenance["updates"]))
    assert len(saved) >= 3
    assert saved == sorted(saved)
    assert saved[-1] == 8


@pytest.mark.parametrize(
    "other",
    [
        lambda: trainer_of(replace(RECIPE, lr=2e-2)),
        lambda: trainer_of(updates=9),
        lambda: trainer_of(images=255 - IMAGES),
        lambda: trainer_of(labels=1 - LABELS),
        lambda: trainer_of(names=("a", "c")),
        lambda: trainer_of(seed=1),
        lambda: trainer_of(start=trainer_of().averaged()),
    ],
)
def test_the_state_of_another_training_is_refused(tmp_path, other):
    train(trainer_of(), tmp_path, minutes=0)
    with pytest.raises(InputError, match="a training of other data, preset, updates, seed or start; choose another"):
        train(other(), tmp_path)


def test_a_damaged_state_is_refused(tmp_path):
    train(trainer_of(), tmp_path, minutes=0)
    path = tmp_path / STATE
    for content in (path.read_bytes()[:-3], b"", b"not tensors"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"not a readable .safetensors file .*; remove it to start again"):
            train(trainer_of(), tmp_path)


def test_two_trainings_do_not_share_a_folder(tmp_path):
    with locked(tmp_path / LOCK), pytest.raises(InputError, match="another process is training here"):
        train(trainer_of(), tmp_path)


def test_averages_follow_the_recursion():
    trainer, decays = trainer_of(updates=20), []
    averages = [parameter.detach().double().clone() for parameter in trainer.parameters]
    for number in range(20):
        trainer.update()
        decays.append(min(RECIPE.ema, (1 + number) / (10 + number)) if number else 0.0)
        for average, parameter in zip(averages, trainer.parameters, strict=True):
            average.mul_(decays[-1]).add_(parameter.detach().double(), alpha=1 - decays[-1])
    assert decays[-1] == RECIPE.ema  # the warm-up of the average ended
    for average, found in zip(averages, trainer.ema.shadow_params, strict=True):
        torch.testing.assert_close(found.double(), average, rtol=1e-5, atol=1e-6)
    kept = trainer.averaged().tensors
    for (name, _), average in zip(trainer.network.named_parameters(), averages, strict=True):
        torch.testing.assert_close(kept[name].double(), average, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("target", ["epsilon", "v_prediction"])
def test_loss_weights_are_those_of_min_snr(schedule, target):
    network = replace(TINY, schedule=schedule, target=target)
    signal = DDPMScheduler(**network.scheduler_settings()).alphas_cumprod.double()
    ratio = signal / (1 - signal)
    expected = ratio.clamp(max=5) / (ratio if target == "epsilon" else ratio + 1)
    weights = trainer_of(replace(RECIPE, network=network, min_snr=5.0)).loss_weight
    torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-7)
    assert torch.equal(trainer_of(replace(RECIPE, network=network)).loss_weight, torch.ones(1000))


@pytest.mark.parametrize("target", ["epsilon", "v_prediction"])
def test_the_right_answer_has_no_loss_and_zero_has_that_of_the_noise(target):
    """With one image to learn, the right prediction is known."""
    recipe = replace(RECIPE, network=replace(TINY, schedule="linear", target=target), batch=200, min_snr=2.0)
    trainer = trainer_of(recipe, images=np.repeat(IMAGES[:1], 12, axis=0))
    clean = torch.from_numpy(IMAGES[0] / 127.5 - 1).float()

    def answer(noisy, level, class_labels):
        signal, share = (v.sqrt()[:, None, None, None] for v in (abar[level], 1 - abar[level]))
        noise = (noisy - signal * clean) / share
        wanted = noise if target == "epsilon" else signal * noise - share * clean
        seen.append((wanted, level))
        return SimpleNamespace(sample=factor * wanted)

    abar, seen, factor = trainer.scheduler.alphas_cumprod, [], 1
    trainer.called = answer
    assert trainer._loss().item() < 1e-5
    factor = 0
    loss, (wanted, level) = trainer._loss().item(), seen[-1]
    expected = (wanted.square().mean(dim=(1, 2, 3)) * trainer.loss_weight[level]).mean().item()
    assert loss == pytest.approx(expected, rel=1e-3)
    assert len(level.unique()) > 100


def test_dropped_classes_become_the_class_for_no_class():
    everything, nothing = (trainer_of(replace(RECIPE, class_dropout=share))._batch()[1] for share in (1.0, 0.0))
    assert everything.tolist() == [2] * 8
    assert nothing.max() < 2
    some = trainer_of(replace(RECIPE, class_dropout=0.25, batch=4000))._batch()[1]
    assert abs((some == 2).float().mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 4000)


@pytest.mark.parametrize("flip", [False, True])
def test_a_batch_has_images_of_their_classes_and_at_most_mirrors_them(flip):
    clean, classes = trainer_of(replace(RECIPE, flip=flip, class_dropout=0.0, batch=400))._batch()
    pixels = ((clean + 1) * 127.5).round().to(torch.uint8).numpy()
    known = {image.tobytes(): (place, False) for place, image in enumerate(IMAGES)}
    mirrors = {image[..., ::-1].tobytes(): (place, True) for place, image in enumerate(IMAGES)}
    found = [(known | mirrors if flip else known)[image.tobytes()] for image in pixels]
    assert [LABELS[place] for place, _ in found] == classes.tolist()
    assert {place for place, _ in found} == set(range(12))
    mirrored = np.mean([turned for _, turned in found])
    assert mirrored == 0 if not flip else 0.4 < mirrored < 0.6
    assert clean.abs().max() <= 1


def test_the_learning_rate_equals_the_presets():
    trainer = trainer_of()
    for number in range(8):
        trainer.update()
        assert trainer.optimiser.param_groups[0]["lr"] == RECIPE.rate(number, 8)


def test_the_loss_falls():
    plain = np.stack([np.full((1, 4, 4), grey, dtype=np.uint8) for grey in (0, 255)])
    trainer = trainer_of(replace(RECIPE, batch=16), plain, np.arange(2), updates=40)
    losses = []
    for _ in range(4):
        trainer.loss_sum.zero_()
        losses.append(updated(trainer, 10).loss_sum.item() / 10)
    assert losses[-1] < 0.6 * losses[0]


def assert_stopped(trainer, folder, **options):
    with pytest.raises(RunError, match=r"lower the learning rate\. The weights of update ") as caught:
        train(trainer, folder, **options)
    assert caught.value.exit_code == 3
    assert str(folder / GENERATOR) in str(caught.value)
    kept = Weights.load(folder / GENERATOR)
    assert kept.finite
    assert f"The weights of update {kept.provenance['updates']} are in" in str(caught.value)
    return kept.provenance["updates"]


def test_a_loss_that_is_not_finite_stops_training_with_the_last_good_average(tmp_path):
    trainer, good = trainer_of(updates=50), []

    def spoil(progress):
        good.append(trainer.averaged())
        if progress.update >= 3:
            with torch.no_grad():
                trainer.parameters[0].fill_(math.nan)

    assert assert_stopped(trainer, tmp_path, on_look=spoil) == good[-1].provenance["updates"]
    assert Weights.load(tmp_path / GENERATOR).fingerprint == good[-1].fingerprint


def test_weights_that_overflow_are_not_kept(tmp_path):
    """The loss of an update does not depend on the weights after it."""
    assert assert_stopped(trainer_of(replace(RECIPE, lr=1e30)), tmp_path) == 0


def test_out_of_memory_halves_the_batch(tmp_path, monkeypatch, caplog):
    real = Trainer._one_step

    def scarce(self):
        if self.batch > 2:
            raise torch.OutOfMemoryError("a small device")
        return real(self)

    monkeypatch.setattr(Trainer, "_one_step", scarce)
    trainer = trainer_of()
    with caplog.at_level(logging.WARNING, "fedeas"):
        weights = train(trainer, tmp_path)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("fedeas", f"out of memory while training; continuing with batches of {size}") for size in (4, 2)
    ]
    assert (weights.provenance["updates"], weights.provenance["images"]) == (8, 16)
    resumed = trainer_of()
    resumed.restore(tmp_path / STATE)
    assert resumed.batch == 2  # it is not tried again


def test_a_batch_of_one_that_does_not_fit_is_an_error(monkeypatch):
    def full(self):
        raise torch.OutOfMemoryError("a full device")

    monkeypatch.setattr(Trainer, "_one_step", full)
    with pytest.raises(torch.OutOfMemoryError, match="a full device"):
        trainer_of().update()


def test_training_from_start_weights_continues_from_them():
    start = updated(trainer_of(), 5).averaged(dataset="x", protocol="clean")
    trainer = trainer_of(start=start, seed=9)
    first = trainer.averaged(protocol="clean")
    assert all(torch.equal(first.tensors[name], start.tensors[name]) for name in start.tensors)
    seen = updated(trainer, 2).averaged(protocol="clean").provenance
    assert (seen["updates"], seen["images"], seen["protocol"]) == (7, 56, "clean")
    assert trainer.averaged().fingerprint != start.fingerprint


@pytest.mark.parametrize(("before", "after"), [({"protocol": "merged"}, "merged"), ({}, "unknown")])
def test_test_images_that_the_start_weights_saw_stay_recorded(before, after):
    start = updated(trainer_of(), 1).averaged(**before)
    assert trainer_of(start=start).averaged(protocol="clean").provenance["protocol"] == after


@pytest.mark.parametrize(
    "options",
    [
        {"recipe": replace(RECIPE, network=replace(TINY, layers=2))},
        {"recipe": replace(RECIPE, network=replace(TINY, target="v_prediction"))},
        {"images": np.zeros((12, 1, 6, 4), dtype=np.uint8)},
    ],
)
def test_start_weights_of_another_network_are_refused(options):
    start = trainer_of().averaged()
    with pytest.raises(InputError, match="of another preset or image shape"):
        trainer_of(**options, start=start)


@given(st.permutations(["a", "b", "c", "d"]), st.integers(2, 4))
@settings(max_examples=10)
def test_a_start_with_other_classes_keeps_all_but_the_vectors_of_new_classes(names, number):
    start, fresh = trainer_of(names=("a", "b")).averaged(), trainer_of(names=tuple(names[:number])).averaged()
    found = trainer_of(names=tuple(names[:number]), start=start).averaged()
    assert found.class_names == tuple(names[:number])
    before, random, vectors = (each.tensors[CLASSES] for each in (start, fresh, found))
    expected = [
        before[("a", "b").index(name)] if name in "ab" else random[row] for row, name in enumerate(names[:number])
    ]
    assert torch.equal(vectors, torch.stack([*expected, before[-1]]))
    assert all(torch.equal(found.tensors[name], start.tensors[name]) for name in start.tensors if name != CLASSES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "there are no images to train on"),
        ({"labels": LABELS[1:]}, "11 labels but 12 indices"),
        ({"names": ("a",)}, "label 1 is not between 0 and 0"),  # it would be trained as "no class"
        ({"images": IMAGES[..., :3]}, "images of 4 x 3 cannot be halved 1 times"),
    ],
)
def test_data_that_cannot_be_trained_on_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        trainer_of(**options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
class TestOnAGpu:
    def test_training_learns_and_its_images_can_be_drawn(self, tmp_path):
        plain = np.stack([np.full((1, 8, 8), grey, dtype=np.uint8) for grey in (0, 255)])
        recipe = replace(RECIPE, batch=64, updates=300, ema=0.98, steps=10)
        weights = train(trainer_of(recipe, plain, np.arange(2), device="cuda"), tmp_path)
        assert weights.provenance["images"] == 64 * 300
        images = DiffusionGenerator(weights, device="cuda", batch_size=16).sample(np.arange(32) % 2, np.arange(32))
        assert images[1::2].mean() - images[::2].mean() > 100

    def test_a_resumed_training_continues(self, tmp_path):
        updated(trainer_of(device="cuda", updates=20), 10).save(tmp_path / STATE)
        resumed = trainer_of(device="cuda", updates=20)
        resumed.restore(tmp_path / STATE)
        whole, resumed = updated(trainer_of(device="cuda", updates=20), 20), updated(resumed, 10)
        assert torch.equal(resumed.random.get_state(), whole.random.get_state())
        for one, other in zip(resumed.parameters, whole.parameters, strict=True):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.02)
