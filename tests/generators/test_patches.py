"""Networks on a grid of patches, and the preset that uses them: images of 16 to 32 pixels on a CPU."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedeas.generators.diffusion.presets import Network, PatchNetwork, Preset, preset
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.updates import _loss_weight
from fedeas.generators.diffusion.weights import Weights

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

TINY = PatchNetwork((8, 16), layers=1, attention=(False, False), groups=4, target="sample", cells=4)
RECIPE = Preset(TINY, batch=8, updates=60, lr=5e-3, ema=0.9, class_dropout=0.0, min_snr=5.0, warm_up=5, steps=5)
SHADES = (30, 220)


@pytest.fixture(scope="module")
def weights():
    """Trained on two shades of grey, one for each class."""
    labels = np.arange(20) % 2
    images = np.array(SHADES, np.uint8)[labels][:, None, None, None] * np.ones((1, 1, 9, 9), np.uint8)
    trainer = Trainer(images, labels, ["dark", "light"], RECIPE)
    for _ in range(RECIPE.updates):
        trainer.update()
    return trainer.averaged()


@pytest.mark.parametrize("shape", [(1, 16, 16), (1, 28, 28), (3, 32, 32), (3, 20, 26)])
def test_the_quick_preset_takes_images_of_every_size(shape):
    network = preset("quick").network.build(shape, 3)
    images = torch.randn(2, *shape)
    with torch.no_grad():
        predicted = network(images, torch.tensor([5, 900]), class_labels=torch.tensor([0, 2])).sample
    assert predicted.shape == images.shape
    assert max(network.config.sample_size) == 8


def test_patches_hold_the_pixels_of_the_image():
    network, images = TINY.build((3, 9, 14), 2), torch.randn(2, 3, 9, 14)
    again = functional.pixel_shuffle(network._patches(images), network.patch)
    assert torch.equal(again[:, :, :9, :14], images)


def test_a_network_of_patches_comes_back_from_json_and_a_plain_one_stays_plain():
    assert Network.of(json.loads(json.dumps(asdict(TINY)))) == TINY
    assert "cells" not in asdict(preset("compact").network)  # the fingerprints of weights depend on it


def test_the_loss_of_clean_images_is_that_of_the_noise():
    noise = Trainer(np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, int), ["a"], RECIPE).scheduler
    alphas = noise.alphas_cumprod.double()
    for_clean, for_noise = (
        _loss_weight(noise, replace(RECIPE, network=replace(TINY, target=target))) for target in ("sample", "epsilon")
    )
    torch.testing.assert_close(for_clean.double(), for_noise.double() * alphas / (1 - alphas), rtol=1e-3, atol=1e-6)


def test_it_learns_classes_and_an_image_depends_on_its_address_alone(weights, tmp_path):
    weights.save(tmp_path / "w.safetensors")
    generator = DiffusionGenerator(Weights.load(tmp_path / "w.safetensors"), batch_size=4)
    labels, index = np.arange(6) % 2, np.arange(6)
    images = generator.sample(labels, index)
    assert images[labels == 1].mean() - images[labels == 0].mean() > 60
    assert np.array_equal(generator.sample(labels[4:5], index[4:5]), images[4:5])
