import numpy as np
import pytest
import torch
from oracles import local_loss

from fedeas import InputError
from fedeas.algorithms import MOON, FedAvg
from fedeas.algorithms.base import ClientJob, model_arrays
from fedeas.algorithms.moon import contrast
from fedeas.config import TrainConfig
from fedeas.data.client import ClientData, Normaliser
from fedeas.models.build import build_model, parameter_names


@pytest.mark.parametrize(("name", "shape"), [("small-cnn", (1, 8, 8)), ("resnet18", (3, 32, 32))])
def test_the_projection_is_between_features_and_head(name, shape):
    model = build_model(name, shape, 5, seed=0, projection=16)
    images = torch.randn(2, *shape)
    assert model.features(images).shape == (2, 16)
    assert torch.equal(model.eval()(images), model.head(model.features(images)))
    assert not any("base.head" in each or "base.fc" in each for each in parameter_names(model))


def test_the_base_is_the_same_as_without_and_the_rest_depends_on_the_seed():
    plain = build_model("small-cnn", (1, 8, 8), 5, seed=3).state_dict()
    projected = build_model("small-cnn", (1, 8, 8), 5, seed=3, projection=16).state_dict()
    again = build_model("small-cnn", (1, 8, 8), 5, seed=3, projection=16).state_dict()
    assert torch.equal(projected["base.conv1.weight"], plain["conv1.weight"])
    assert all(torch.equal(projected[key], again[key]) for key in projected)
    with pytest.raises(InputError, match="projection 0 or more"):
        build_model("small-cnn", (1, 8, 8), 5, seed=3, projection=-1)


def test_moon_contrasts_what_the_projection_gives():
    local, anchor = (build_model("small-cnn", (1, 8, 8), 5, seed=seed, projection=16) for seed in (0, 1))
    rng = np.random.default_rng(0)
    data = ClientData.of(
        rng.integers(0, 256, (6, 1, 8, 8), dtype=np.uint8), rng.integers(0, 5, 6), Normaliser.of((0.5,), (0.25,))
    )
    images = data.normalise(data.images)
    state = {f"previous/{name}": tensor for name, tensor in local.state_dict().items()}
    job = ClientJob(0, 0, 0, 1, anchor, data, model_arrays(anchor), state, TrainConfig())
    term = local_loss(MOON(mu=1), job)(local, images, data.labels) - local_loss(FedAvg(), job)(
        local, images, data.labels
    )
    near, far = anchor.features(images), local.features(images)
    assert near.shape == (6, 16)
    assert term.item() == pytest.approx(contrast(far, near, far, 0.5).mean().item(), rel=1e-4)
