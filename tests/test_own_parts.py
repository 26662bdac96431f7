"""The parts of one's own in examples/ work from a config and on the command line."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas import InputError, SpecError
from fedeas.algorithms import ClientJob, parse_algorithm
from fedeas.algorithms.base import model_arrays
from fedeas.cli import main
from fedeas.config import TrainConfig, load_config
from fedeas.data.client import ClientData, Normaliser
from fedeas.federation.run import execute, identified
from fedeas.models.build import build_model
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import RunStore
from fedeas.testing import check_algorithm, check_policy

ROOT = Path(__file__).parent.parent
OWN = """
policy = "python:examples.own_policy:RaiseRare(share=0.2)"
generator = "python:examples.custom_generator:stripes"
algorithm = "python:examples.own_algorithm:ServerMomentum(momentum=0.5)"
model.name = "python:examples.own_model:Perceptron(hidden=8)"
data.dataset = "python:examples.own_dataset:discs(size=8, train=60, test=30)"
partition = {clients = 3, alpha = 1.0}
train.epochs = 1
rounds.total = 1
"""


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_all_parts_of_a_run_can_be_ones_own(tmp_path):
    (tmp_path / "own.toml").write_text(OWN)
    run = execute(load_config(tmp_path / "own.toml"), RunStore(tmp_path / "runs"))
    assert run.finished
    content = run.config.content
    assert all((content.policy, content.algorithm, content.model, content.generator, content.data))
    assert len({content.policy, content.algorithm, content.model}) == 3
    plain = identified(load_config(tmp_path / "own.toml", ["model.name=auto", "algorithm=fedavg"]))
    assert (plain.content.model, plain.content.algorithm) == ("", "")


def test_the_examples_keep_the_laws():
    check_policy(parse_policy("python:examples.own_policy:RaiseRare(share=0.3)"))
    check_algorithm(parse_algorithm("python:examples.own_algorithm:ServerMomentum(momentum=0.5)"))
    check_algorithm(parse_algorithm("python:examples.own_loss:FedLC(tau=0.5)"))
    check_algorithm(parse_algorithm("python:examples.own_loss:FedRS(alpha=0.2)"))


def test_a_loss_of_ones_own_is_trained_with_and_belongs_to_an_algorithm(tmp_path):
    runs = {}
    own = "python:examples.own_loss:"
    for algorithm in ("fedavg", f"{own}FedLC(tau=0)", f"{own}FedRS(alpha=1)", f"{own}FedLC", f"{own}FedRS"):
        config = load_config("digits", ["rounds.total=1", "policy=no-generation", f"algorithm={algorithm}"])
        runs[algorithm] = execute(config, RunStore(tmp_path / "runs")).rounds()[0]["train_loss"]
    plain, *same = [*runs.values()][:3]
    assert same == pytest.approx([plain, plain], rel=1e-5)
    assert all(loss != pytest.approx(plain, rel=1e-3) for loss in [*runs.values()][3:])
    with pytest.raises(InputError, match="objective"):
        load_config("digits", [f"train.loss={own}FedLC"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("FedLC(tau=2)", lambda logits, counts: logits - 2 * counts.clamp(min=1e-8) ** -0.25),
        ("FedRS(alpha=0.2)", lambda logits, counts: torch.where(counts > 0, logits, 0.2 * logits)),
    ],
)
def test_the_losses_of_the_examples_are_those_of_their_papers(spec, expected):
    labels, model = torch.tensor([0, 0, 0, 2]), build_model("small-cnn", (1, 8, 8), 3, seed=0)
    data = ClientData.of(np.zeros((4, 1, 8, 8), np.uint8), labels.numpy(), Normaliser.of((0.5,), (0.25,)))
    job = ClientJob(0, 0, 0, 1, model, data, model_arrays(model), {}, TrainConfig())
    objective = parse_algorithm(f"python:examples.own_loss:{spec}").objective(job)
    images = torch.randn(4, 1, 8, 8)
    found = objective.loss(model, objective.batch(images, labels), objective.shared)
    adjusted = expected(model(images), torch.tensor([3.0, 0.0, 1.0]))
    assert torch.allclose(found, torch.nn.functional.cross_entropy(adjusted, labels))


@pytest.mark.parametrize("value", ["fast", "true"])
def test_a_field_of_a_wrong_type_is_named(value):
    with pytest.raises(SpecError, match="momentum must be a number"):
        parse_algorithm(f"python:examples.own_algorithm:ServerMomentum(momentum={value})")


def test_an_own_policy_plans_on_the_command_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--example", "--policy", "python:examples.own_policy:RaiseRare(share=0.5)"])
    assert ended.value.code in (None, 0)
    assert "RaiseRare(share=0.5)" in capsys.readouterr().out


def test_the_page_names_parts_that_exist():
    commands = re.findall(r"python:examples\.(\w+):(\w+)", (ROOT / "docs" / "extending.md").read_text())
    assert len(set(commands)) == 6
    for module, name in commands:
        assert re.search(rf"^(class|def) {name}\b", (ROOT / "examples" / f"{module}.py").read_text(), re.MULTILINE)


def test_the_page_shows_each_example_in_less_than_thirty_lines():
    page = (ROOT / "docs" / "extending.md").read_text()
    shown = re.findall(r"<!-- code examples/(\w+)\.py -->\n\n```python\n(.*?)```", page, re.DOTALL)
    assert {name for name, _ in shown} == {"own_loss", *re.findall(r"python:examples\.(\w+)", OWN)}
    assert all(len(code.splitlines()) < 30 for _, code in shown)
