import pytest
import torch

from fedeas import InputError
from fedeas.algorithms import MOON
from fedeas.models import build_model, parameter_names


@pytest.mark.parametrize(("name", "shape"), [("small-cnn", (1, 8, 8)), ("resnet18", (3, 32, 32))])
def test_a_projection_stands_between_features_and_head(name, shape):
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
    with pytest.raises(InputError, match="projection must be 0 or more"):
        build_model("small-cnn", (1, 8, 8), 5, seed=3, projection=-1)


def test_moon_contrasts_what_the_projection_gives():
    assert MOON().spec == "moon(mu=5)"
    model = build_model("small-cnn", (1, 8, 8), 5, seed=0, projection=16)
    assert model.head.in_features == 16
