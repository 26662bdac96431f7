"""Differential privacy of a client's updates: clipping, noise, and what the accountant says about all answers."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)
pytest.importorskip("opacus", reason="needs an accountant: pip install 'fedeas[privacy]'", exc_type=ImportError)

from flower.grids import StraightGrid

from fedeas.algorithms.base import Fleet
from fedeas.config import load_config
from fedeas.config.generators import Gaussian
from fedeas.core.errors import InputError, RunError
from fedeas.federation.gaussian_sums import SUMS, GaussianSums
from fedeas.flower.app import run_on
from fedeas.flower.engine import UnusableError, check_tensors
from fedeas.flower.node_settings import Privacy, TellableError, read_node_config
from fedeas.flower.privacy import PrivacyLedger, epsilon_of, noise_for, protect, with_noise
from fedeas.flower.wire import Parcel, packed, unpacked
from fedeas.runs.store import RunStore

CLIENTS = 2
BASE = [f"partition.clients={CLIENTS}", "rounds.participation=1.0", "train.steps=2", "engine.threads=1",
        "engine.timeout=0.3", "engine.name=flower"]  # fmt: skip
SILENT = 1e-12
"""Noise that cannot be seen."""


def run(tmp_path, *overrides, rounds=2, **privacy):
    node = {f"dp-{name}": value for name, value in privacy.items()}
    grid = StraightGrid(tmp_path / "nodes", CLIENTS, node_config=node)
    config = load_config(None, [*BASE, f"rounds.total={rounds}", *overrides])
    return run_on(grid, config, RunStore(tmp_path / "runs")), grid


# ---- one answer


def model(*sizes):
    return {f"model/{number}": torch.zeros(size) for number, size in enumerate(sizes)}


@settings(max_examples=30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=4), st.floats(1e-3, 1e3), st.floats(0, 1e3))
def test_a_change_is_never_longer_than_the_clip(sizes, clip, length):
    sent, rng = model(*sizes), np.random.default_rng(len(sizes))
    reply = {name: torch.from_numpy(rng.normal(0, length, tensor.shape)).float() for name, tensor in sent.items()}
    found = protect(reply, sent, Privacy(clip, SILENT))
    norm = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in found.values()))
    before = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in reply.values()))
    assert norm == pytest.approx(min(clip, before), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_replaced_by_noise(caplog, number):
    reply = {"model/0": torch.tensor([100.0, 200.0, 300.0]), "model/1": torch.tensor([number]).double()}
    sent = {name: torch.zeros_like(tensor) for name, tensor in reply.items()}
    found = protect(reply, sent, Privacy(1.0, SILENT))
    for name, tensor in sent.items():
        assert torch.allclose(found[name], tensor, atol=1e-9)
    assert "noise alone" in caplog.text


def test_noise_has_the_deviation_that_the_owner_chose():
    sent = model(40_000, 40_000)
    found = protect(sent, sent, Privacy(clip=0.5, noise=3.0))
    for tensor in found.values():
        assert float(tensor.std()) == pytest.approx(1.5, rel=0.03)
        assert abs(float(tensor.mean())) < 0.05


def test_no_two_answers_have_the_same_noise():
    sent = model(100)
    one, other = (protect(sent, sent, Privacy(1.0, 1.0))["model/0"] for _ in range(2))
    assert not torch.equal(one, other)
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.5


def test_counters_are_kept_and_other_arrays_refused():
    sent = {**model(3), "model/steps": torch.tensor(7)}
    found = protect({**sent, "model/steps": torch.tensor(9)}, sent, Privacy(1.0, 1.0))
    assert int(found["model/steps"]) == 9
    with pytest.raises(TellableError, match="sends more than a model"):
        protect({**sent, "control/0": torch.zeros(3)}, sent, Privacy(1.0, 1.0))


# ---- all answers


@pytest.mark.parametrize("noise", [2.0, 8.0, 40.0])
@pytest.mark.parametrize("answers", [1, 30])
def test_epsilon_is_not_below_what_the_exact_curve_of_the_gaussian_says(noise, answers):
    """An oracle: the privacy of Gaussian mechanisms together is known in closed form (Balle and Wang, 2018)."""
    delta, ratio = 1e-5, math.sqrt(answers) / (noise / 2)  # sensitivity over deviation, all answers as one

    def delta_at(epsilon):
        def below(x):
            return 0.5 * math.erfc(-x / math.sqrt(2))

        return below(ratio / 2 - epsilon / ratio) - math.exp(min(epsilon, 700)) * below(-ratio / 2 - epsilon / ratio)

    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    assert high <= epsilon_of({noise: answers}, delta) <= 1.5 * high + 0.1


def test_every_answer_of_a_node_is_counted_over_all_its_runs(tmp_path):
    done, _ = run(tmp_path, clip=1e-3, noise=20.0)
    run(tmp_path, "seed=1", rounds=1, clip=1e-3, noise=20.0)
    lines = [json.loads(line) for line in (tmp_path / "nodes/node0/privacy-0.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 0]
    assert len({line["run"] for line in lines}) == 2
    assert [line["epsilon"] for line in lines] == pytest.approx([epsilon_of({20.0: n}, 1e-5) for n in (1, 2, 3)])
    assert [record["epsilon"] for record in done.rounds()] == [line["epsilon"] for line in lines[:2]]


def test_a_node_answers_no_more_when_its_budget_is_spent(tmp_path, caplog):
    limit = epsilon_of({20.0: 2}, 1e-5)
    with pytest.raises(RunError, match=r"round 3: 0 of 2 .*privacy budget is spent.* dp-epsilon is"):
        run(tmp_path, rounds=3, clip=1e-3, noise=20.0, epsilon=limit)
    for client in range(CLIENTS):
        assert len((tmp_path / f"nodes/node{client}/privacy-{client}.jsonl").read_text().splitlines()) == 2
    with pytest.raises(RunError, match="privacy budget is spent"):  # now before the first round
        run(tmp_path, "seed=1", rounds=3, clip=1e-3, noise=20.0, epsilon=limit)


def test_the_loss_stays_at_home_and_the_settings_are_known(tmp_path):
    done, grid = run(tmp_path, rounds=1, clip=0.5, noise=4.0)
    told = [unpacked(reply)[0] for kind, _, reply in grid.seen if kind == "train"]
    assert all("loss" not in header["metrics"] and header["metrics"]["epsilon"] > 0 for header in told)
    assert "train_loss" not in done.rounds()[0]
    introduced = [unpacked(reply)[0] for kind, _, reply in grid.seen if kind == "query.hello"]
    assert {header["privacy"]["noise"] for header in introduced} == {4.0}


def test_clipping_alone_leaves_a_run_as_it_is(tmp_path):
    """A large clip and noise that cannot be seen: the same accuracy as without."""
    private, _ = run(tmp_path / "private", "train.lr=0.1", rounds=1, clip=1e6, noise=SILENT)
    plain, _ = run(tmp_path / "plain", "train.lr=0.1", rounds=1)
    assert private.rounds()[-1]["accuracy"] == plain.rounds()[-1]["accuracy"]


# ---- sums for a Gaussian generator

SUMMING = GaussianSums(Gaussian(components=2), (1, 2, 2), ("a", "b"))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 300.0])
def test_noise_for_an_epsilon_is_the_least_that_the_ledger_counts_as_no_more(epsilon):
    noise = noise_for(epsilon, 1e-5)
    assert 0.99 * epsilon <= epsilon_of({2 * noise: 1}, 1e-5) <= epsilon


def test_sums_are_noted_in_the_ledger_with_the_epsilon_of_their_owner(tmp_path):
    ledger, privacy = PrivacyLedger(tmp_path, 0), Privacy(1.0, 20.0, sums_clip=50.0, sums_epsilon=2.0)
    private = with_noise(SUMMING, privacy, ledger, "run")
    assert (private.noise.clip, private.noise.noise) == (50.0, noise_for(2.0, 1e-5))
    (line,) = (json.loads(line) for line in ledger.path.read_text().splitlines())
    assert line["epsilon"] == pytest.approx(2.0, rel=0.01)
    assert ledger.spend("run", 1, privacy) == pytest.approx(epsilon_of({2 * private.noise.noise: 1, 20.0: 1}, 1e-5))


def test_sums_are_refused_beyond_the_budget_and_without_noise_of_their_own(tmp_path):
    ledger = PrivacyLedger(tmp_path, 0)
    with pytest.raises(TellableError, match="privacy budget is spent"):
        with_noise(SUMMING, Privacy(1.0, 20.0, limit=1.5, sums_clip=50.0, sums_epsilon=2.0), ledger, "run")
    for chosen in ({}, {"sums_clip": 50.0}, {"sums_epsilon": 2.0}):
        with pytest.raises(TellableError, match="set dp-sums-clip and dp-sums-epsilon"):
            with_noise(SUMMING, Privacy(1.0, 20.0, **chosen), ledger, "run")
    with pytest.raises(TellableError, match="no noise has an epsilon of 1e-09"):
        with_noise(SUMMING, Privacy(1.0, 20.0, sums_clip=50.0, sums_epsilon=1e-9), ledger, "run")
    assert not ledger.path.exists()


def test_sums_cross_the_wire_as_they_are_and_a_wrong_form_is_refused():
    server = SUMMING.init(torch.nn.Identity(), Fleet(np.array([4]), 2))
    sums = torch.arange(12).reshape(2, 6) - 2**60
    _, came = unpacked(packed({}, Parcel.of({SUMS: sums})))
    assert torch.equal(came[SUMS], sums)
    check_tensors(came, server)
    for wrong in ({SUMS: sums[:1]}, {SUMS: sums.double()}, {}):
        with pytest.raises(UnusableError):
            check_tensors(wrong, server)


# ---- what does not go with it


@pytest.mark.parametrize("setting", ["algorithm=scaffold", "algorithm=fedmix", "algorithm=fedgen"])
def test_algorithms_that_send_more_than_a_model_are_refused_before_the_first_round(tmp_path, setting):
    with pytest.raises(RunError, match="sends more than a model; use fedavg, fedprox or moon"):
        run(tmp_path, setting, "engine.share_counts=true", clip=1.0, noise=1.0)


def test_batch_norm_is_refused_before_the_first_round(tmp_path):
    with pytest.raises(RunError, match=r"set model\.norm=group"):
        run(tmp_path, "model.norm=batch", clip=1.0, noise=1.0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"dp-clip": 1.0}, "set both or none"),
        ({"dp-epsilon": 8.0}, "set both or none"),
        ({"dp-clip": 1.0, "dp-noise": "1"}, "dp-noise in its node config must be a number above 0"),
        ({"dp-clip": 1.0, "dp-noise": 0}, "dp-noise in its node config must be a number above 0"),
        ({"dp-clip": float("nan"), "dp-noise": 1.0}, "dp-clip in its node config"),
        ({"dp-clip": 1.0, "dp-noise": 1.0, "dp-delta": 1}, "between 0 and 1"),
        ({"dp-sums-clip": 1.0, "dp-sums-epsilon": 1.0}, "needs dp-clip and dp-noise"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(given, reason):
    with pytest.raises(TellableError, match=reason):
        read_node_config({"partition-id": 0, **given})


def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path):
    ledger = PrivacyLedger(tmp_path, 0)
    ledger.spend("run", 0, Privacy(1.0, 20.0))
    ledger.path.write_bytes(ledger.path.read_bytes()[:-20] + b"\n")
    with pytest.raises(InputError, match=r"privacy-0\.jsonl"):
        ledger.spend("run", 1, Privacy(1.0, 20.0))


def test_a_node_that_was_killed_while_it_noted_an_answer_goes_on_counting(tmp_path):
    ledger, privacy = PrivacyLedger(tmp_path, 0), Privacy(1.0, 20.0)
    ledger.spend("run", 0, privacy)
    noted = ledger.path.read_bytes()
    ledger.path.write_bytes(noted + noted[:-20])  # of an answer that was never given
    ledger.check(privacy, 1)
    assert ledger.spend("run", 1, privacy) == pytest.approx(epsilon_of({20.0: 2}, 1e-5))
    assert ledger.spend("run", 2, privacy) == pytest.approx(epsilon_of({20.0: 3}, 1e-5))


def test_nodes_that_share_a_state_folder_share_the_budget(tmp_path):
    privacy = Privacy(1.0, 20.0, limit=epsilon_of({20.0: 5}, 1e-5))
    with ThreadPoolExecutor(4) as nodes:
        answers = [nodes.submit(PrivacyLedger(tmp_path, 0).spend, "run", round, privacy) for round in range(20)]
    given = [answer.result() for answer in answers if answer.exception() is None]
    assert sorted(given) == pytest.approx([epsilon_of({20.0: count}, 1e-5) for count in range(1, 6)])


def test_what_a_node_must_remember_is_not_in_a_cache_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("FEDEAS_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert read_node_config({"partition-id": 0})[1].state == tmp_path / ".local/state/fedeas"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "lasting"))
    assert read_node_config({"partition-id": 0})[1].state == tmp_path / "lasting/fedeas"
