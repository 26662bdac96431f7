"""Users' own parts in specs and configs: found by module or by entry point, read without being imported, digested."""

import sys

import pytest

from fedeas import InputError, LabelCounts, SpecError, parse_policy
from fedeas.algorithms import parse_algorithm
from fedeas.config import RunConfig, load_config
from fedeas.core.spec import code_digest, installed, own_code_in, read_call
from fedeas.data.sources import load_dataset
from fedeas.generators.kinds import parse_generator
from fedeas.models.build import build_model
from fedeas.planning.policies import policy_spec
from fedeas.planning.request import Limits, choose_policy

COUNTS = LabelCounts([[8, 1], [2, 6]])

PARTS = """
from dataclasses import dataclass, field
from typing import ClassVar
import numpy as np
from torch import nn
from fedeas import Allocation, Policy, Uniform
from fedeas.algorithms import FedAvg


@dataclass(frozen=True)
class Half(Policy):
    share: float = 0.5
    of: str = "all"
    is_local: ClassVar[bool] = True

    def __post_init__(self):
        if self.share > 1:
            raise ValueError("too much")

    def allocate(self, counts):
        wanted = np.floor(self.share * counts.n.max(axis=1, keepdims=True)).astype(int)
        return Allocation(np.maximum(wanted - counts.n, 0), self.spec)


class Fixed(Uniform):
    pass


class NoFields(Policy):
    pass


@dataclass(frozen=True)
class Mine(FedAvg):
    mu: float = 1.0


class Net(nn.Module):
    def __init__(self, shape, num_classes, wide=4, outputs=0):
        super().__init__()
        self.flat = nn.Linear(int(np.prod(shape)), wide)
        self.head = nn.Linear(wide, outputs or num_classes)

    def features(self, x):
        return self.flat(x.flatten(1))

    def forward(self, x):
        return self.head(self.features(x))


def data(count=6, like="digits"):
    labels = np.arange(count) % 2
    images = np.full((count, 4, 4), len(like), dtype=np.uint8)
    return {"images": images, "labels": labels, "test_images": images, "test_labels": labels, "classes": ("a", "b")}


def nothing():
    return None


def bare(shape, num_classes):
    return nn.Linear(1, num_classes)


def images(labels, index):
    return np.zeros((len(labels), 1, 4, 4), dtype=np.uint8)
"""

ENTRY_POINTS = """[fedeas.policies]
half_balance = own_parts:Half
fedeas = own_parts:Half
[fedeas.algorithms]
mine = own_parts:Mine
[fedeas.models]
net = own_parts:Net
[fedeas.generators]
zeros = own_parts:images
[fedeas.datasets]
toys = own_parts:data
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a module in it; what is imported is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_parts.py").write_text(PARTS)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def package(here, monkeypatch):
    """The same module, registered as an installed package would do."""
    info = here / "own_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(here)
    return here


def test_an_own_policy_takes_its_arguments_and_its_spec_is_read_back(here):
    policy = parse_policy("python:own_parts:Half( share=0.25 )")
    assert policy.allocate(COUNTS).n.tolist() == [[0, 1], [0, 0]]
    assert policy.spec == "python:own_parts:Half(share=0.25)"
    assert parse_policy(policy.spec) == policy


def test_own_policies_stand_inside_others_and_others_inside_them(here):
    nested = parse_policy("uniform(budget=python:own_parts:Half(share=0.25))")
    assert nested.allocate(COUNTS).total == 1
    assert parse_policy(nested.spec) == nested
    assert choose_policy("python:own_parts:Fixed", Limits(total=7), COUNTS).allocate(COUNTS).total == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python:own_parts:nothing", "python:own_parts:nothing is no policy; name a class that extends"),
        ("python:own_parts:Mine", "python:own_parts:Mine is no policy; name a class that extends"),
        ("python:own_parts:Half(size=1)", "has no field 'size'; it has share, of"),
        ("python:own_parts:Half(share=2)", "ValueError: too much"),
        ("python:own_parts:NoFields", "make it a frozen dataclass"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_line(here, text, message):
    with pytest.raises(SpecError) as caught:
        parse_policy(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_configs_name_own_parts_without_importing_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is no such module
    config = load_config(None, ["policy=python:gone:Half( of=all,share=0.50)", "algorithm=python:gone:Mine(mu=1e1)"])
    assert config.policy == 'python:gone:Half(of="all", share=0.5)'
    assert config.algorithm == "python:gone:Mine(mu=10)"
    assert RunConfig.model_validate(config.model_dump()).fingerprint == config.fingerprint
    assert policy_spec(config.policy) == config.policy
    assert own_code_in('uniform(budget=python:gone:Half(of="python:a:b"))') == ("python:gone:Half",)


def test_own_models_are_built_by_seed_and_checked(here):
    model = build_model("python:own_parts:Net(wide=3)", (1, 4, 4), 5, seed=1)
    again = build_model("python:own_parts:Net(wide=3)", (1, 4, 4), 5, seed=1)
    assert model.head.weight.shape == (5, 3)
    assert model.head.weight.equal(again.head.weight)
    with pytest.raises(InputError, match="its head has 3 outputs for 5 classes"):
        build_model("python:own_parts:Net(outputs=3)", (1, 4, 4), 5, seed=1)
    with pytest.raises(InputError, match=r"leave out model\.stem and model\.norm"):
        build_model("python:own_parts:Net", (1, 4, 4), 5, seed=1, norm="batch")
    with pytest.raises(InputError, match=r"must make a torch\.nn\.Module"):
        build_model("python:own_parts:bare", (1, 4, 4), 5, seed=1)


def test_own_datasets_are_arrays_with_a_digest(here):
    dataset = load_dataset("python:own_parts:data(count=8)")
    assert (dataset.images.shape, dataset.classes) == ((8, 1, 4, 4), ("a", "b"))
    assert dataset.digest == load_dataset('python:own_parts:data(like="sixsix", count=8)').digest
    assert dataset.digest != load_dataset("python:own_parts:data(count=6)").digest
    with pytest.raises(InputError, match="must give a dictionary with the arrays images, labels"):
        load_dataset("python:own_parts:nothing")


def test_the_digest_of_code_follows_its_file(here):
    before = code_digest(["python:own_parts:Half"], "policy")
    (here / "own_parts.py").write_text(PARTS + "\n# changed\n")
    with pytest.raises(InputError, match="has changed since it was imported"):
        parse_policy("python:own_parts:Half")
    del sys.modules["own_parts"]
    assert code_digest(["python:own_parts:Half"], "policy") != before
    assert code_digest([], "policy") == ""


def test_installed_packages_lend_plain_names(package):
    assert installed("policy")["half-balance"] == "python:own_parts:Half"
    assert parse_policy("Half_Balance(share=0.25)") == parse_policy("python:own_parts:Half(share=0.25)")
    assert parse_policy("uniform(budget=half-balance)").allocate(COUNTS).total == 4
    assert parse_algorithm("mine(mu=2)").mu == 2
    assert parse_generator("zeros").spec == "python:own_parts:images"
    config = load_config(None, ["policy=half-balance(share=0.25)", "model.name=net(wide=2)", "data.dataset=toys"])
    assert config.policy == "python:own_parts:Half(share=0.25)"
    assert config.model.name == "python:own_parts:Net(wide=2)"
    assert config.data.dataset == "python:own_parts:data"


def test_installed_names_are_listed_and_do_not_replace_ours(package):
    with pytest.raises(SpecError, match=r"unknown policy .magic.; known are fedeas, .*half-balance"):
        parse_policy("magic")
    assert parse_policy("fedeas").spec == "fedeas(beta=12)"


def test_calls_keep_what_functions_are_given():
    call = read_call('python:a:b(x=3.0, y=true, z="a b", of=digits)', ("digits",), "dataset")
    assert call.keywords == {"x": 3, "y": True, "z": "a b", "of": "digits"}
