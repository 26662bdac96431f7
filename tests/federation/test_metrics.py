import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedeas.algorithms.base import Reply, model_arrays
from fedeas.core.errors import RunError
from fedeas.data.client import Normaliser
from fedeas.federation.metrics import Evaluation
from fedeas.federation.metrics import gamma_hat as dissimilarity
from fedeas.runs.accuracy_curves import summarise


def gamma_hat(*arguments):
    return float(dissimilarity(*arguments))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_has_no_accuracy(number):
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    images, labels = torch.zeros(5, 1, 4, 4, dtype=torch.uint8), torch.arange(5) % 4
    server = model_arrays(model)
    server["model/1.bias"] = torch.tensor([number, 0.0, 0.0, 0.0])
    with pytest.raises(RunError, match="no longer finite"):
        Evaluation(model, images, labels, 4, Normaliser.of((0.4,), (0.3,)))(server)


def test_gamma_hat_equals_the_supplements_sum():
    torch.manual_seed(0)
    before = {"model/a": torch.randn(5, 3), "model/b": torch.randn(4), "model/count": torch.tensor(0)}
    replies = []
    for client, weight in enumerate((10, 30, 25)):
        arrays = {key: value + torch.randn(value.shape) for key, value in before.items() if key != "model/count"}
        replies.append(Reply(client, weight, {**arrays, "model/count": torch.tensor(10**9)}))
    weights = np.array([10, 30, 25]) / 65
    units = []
    for reply in replies:
        delta = torch.cat([(before[key] - reply.arrays[key]).flatten() for key in ("model/a", "model/b")]).double()
        units.append((delta / delta.norm()).numpy())
    mean = weights @ np.array(units)
    expected = sum(w * ((unit - mean) ** 2).sum() for w, unit in zip(weights, units, strict=True))
    assert gamma_hat(before, replies, ["a", "b"]) == pytest.approx(expected, abs=1e-6)


def test_gamma_hat_of_equal_updates_is_zero_and_of_opposite_ones_one():
    before, step = {"model/a": torch.zeros(4)}, torch.ones(4)
    equal = [Reply(k, 5, {"model/a": step * (k + 1)}) for k in range(3)]
    opposite = [Reply(0, 5, {"model/a": step}), Reply(1, 5, {"model/a": -step})]
    assert gamma_hat(before, equal, ["a"]) == pytest.approx(0, abs=1e-6)
    assert gamma_hat(before, opposite, ["a"]) == pytest.approx(1)


def test_evaluation_counts_right_answers_in_eval_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))
    images, labels = torch.randint(0, 256, (37, 1, 4, 4), dtype=torch.uint8), torch.randint(0, 4, (37,))
    normalise = Normaliser.of((0.4,), (0.3,))
    server = model_arrays(model)
    workspace = copy.deepcopy(model)
    for parameter in workspace.parameters():
        nn.init.zeros_(parameter)
    result = Evaluation(workspace, images, labels, 4, normalise, batch_size=10)(server)
    model.eval()
    logits = model((images / 255 - 0.4) / 0.3)
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    for label, share in enumerate(result["class_accuracy"]):
        assert share == pytest.approx((logits.argmax(1) == labels)[labels == label].float().mean().item(), abs=1e-6)
    assert result["test_loss"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert torch.equal(server["model/1.running_mean"], torch.zeros(3))


def test_every_class_has_an_entry_and_one_without_test_images_has_no_accuracy():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    images, labels = torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]).repeat(3)
    server = model_arrays(model)
    server["model/1.weight"], server["model/1.bias"] = torch.zeros(4, 16), torch.tensor([0.0, 0.0, 1.0, 0.0])
    result = Evaluation(model, images, labels, 4, Normaliser.of((0.4,), (0.3,)))(server)
    assert result["class_accuracy"] == [0.0, None, 1.0, None]
    assert result["accuracy"] == 0.5


def records(accuracies, every=1):
    rows = []
    for number, accuracy in enumerate(accuracies, start=1):
        tested = {"accuracy": accuracy} if number % every == 0 or number == len(accuracies) else {}
        rows.append({"round": number, "gamma_hat": number / 100, **tested})
    return rows


def test_measures_of_a_run_equal_the_papers_definitions():
    accuracies = [0.1 + 0.01 * i for i in range(50)]
    accuracies[30] = 0.99
    result = summarise(records(accuracies), threshold=0.35)
    assert result["accuracy"] == pytest.approx(np.mean(accuracies[45:]))
    assert result["window"] == [46, 50]
    assert result["peak"] == 0.99
    assert result["final"] == accuracies[-1]
    assert result["rounds_to_threshold"] == 26
    assert result["gamma_hat"] == pytest.approx(0.255)


def test_measures_with_gaps_and_few_rounds():
    result = summarise(records([0.2, 0.3, 0.4, 0.5, 0.6, 0.7], every=4), threshold=0.9)
    assert result["accuracy"] == pytest.approx(0.7)
    assert result["rounds_to_threshold"] is None
