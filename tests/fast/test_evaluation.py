"""The captured test of the server's model measures what the plain one does."""

import copy

import pytest
import torch
from federation.engines.six_clients import GPU

from fedeas.algorithms.base import model_arrays
from fedeas.core.devices import torch_precision
from fedeas.data.client import Normaliser
from fedeas.fast.backend import CapturedEvaluation
from fedeas.federation.metrics import Evaluation
from fedeas.models.build import build_model


@pytest.mark.parametrize("images", [20, 23])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[GPU, pytest.mark.gpu])])
def test_it_equals_the_plain_test_whether_or_not_the_last_batch_is_full(images, device):
    stream = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, 3, 16, 16), generator=stream, dtype=torch.uint8).to(device)
    labels = torch.randint(4, (images,), generator=stream).to(device)
    normalise = Normaliser.of((0.4,) * 3, (0.3,) * 3, device)
    model = build_model("resnet18", (3, 16, 16), 4, seed=0).to(device)
    tests = [
        make(copy.deepcopy(model), pixels, labels, 4, normalise, batch_size=10)
        for make in (Evaluation, CapturedEvaluation)
    ]
    for seed in range(2):  # the same workspace tests one state after the other
        state = model_arrays(build_model("resnet18", (3, 16, 16), 4, seed=seed).to(device))
        with torch_precision("fp32", torch.device(device)):
            expected, found = (test(state) for test in tests)
        assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=1e-4)
        assert (found["accuracy"], found["class_accuracy"]) == (expected["accuracy"], expected["class_accuracy"])
