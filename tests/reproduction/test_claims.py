"""The paper, number by number."""

from decimal import Decimal

import numpy as np
import pytest

from fedeas import FedEAS, FullBalance
from fedeas.data.names import KNOWN
from fedeas.data.partition import paper_replay
from reproduction.claims import QUICK_DRAWS, Claim, Status, claims_markdown, count_claims
from reproduction.published import published, recorded, setting

SETTINGS = {each.id: draws for each, draws in zip(published().settings, recorded().draws, strict=True)}
SLOW = "c10-k100-a0.05"


@pytest.fixture(scope="module")
def claims():
    return count_claims()


def test_every_number_that_should_match_does(claims):
    assert [claim for claim in claims if claim.status is Status.WRONG] == []


def test_the_totals_of_the_main_table_are_exact(claims):
    table = [claim for claim in claims if claim.group == "Samples generated"]
    assert len(table) == 8 + 4
    assert {claim.status for claim in table} == {Status.EXACT}


def test_the_sweep_and_the_ablation_are_exact(claims):
    found = [claim for claim in claims if claim.group in ("Beta sweep", "Budget-factor ablation")]
    assert [claim.ours for claim in found] == [4113, 8673, 13437, 18435, 23514, 8673, 10337, 10198]
    assert {claim.status for claim in found} == {Status.EXACT}


def test_every_disagreement_is_explained_and_the_list_is_complete(claims):
    disagreeing = {claim.says for claim in claims if claim.status is Status.DISAGREES}
    assert len(disagreeing) == 7 + 6
    assert all(claim.why for claim in claims if claim.status is Status.DISAGREES)


def test_every_fact_of_the_data_files_is_checked(claims):
    said = {claim.says for claim in claims}
    assert {fact.says for fact in (*published().fact, *recorded().fact)} <= said


def test_only_recorded_facts_and_draws_are_marked_as_not_printed(claims):
    draws = sum(each <= QUICK_DRAWS for each in recorded().draws)
    unprinted = [claim.says for claim in claims if not claim.is_printed]
    assert unprinted[: len(recorded().fact)] == [fact.says for fact in recorded().fact]
    assert len(unprinted) == len(recorded().fact) + draws


def test_eq_gen_as_printed_gives_the_recorded_totals():
    policy = FedEAS(12, fill="all")
    assert tuple(policy.allocate(each.counts()).total for each in published().settings) == recorded().as_printed
    counts = setting("c10-k20-a0.1").counts()
    sweep = tuple(FedEAS(float(beta), fill="all").allocate(counts).total for beta in published().beta_sweep.beta)
    assert sweep == recorded().as_printed_sweep


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == SLOW else ()) for name in SETTINGS]
)
def test_the_replay_gives_the_shipped_partitions(name):
    this = setting(name)
    replay = paper_replay(KNOWN[this.dataset].labels(merged=True), this.clients, float(this.alpha))
    assert replay.recipe["draws"] == SETTINGS[name]
    assert np.array_equal(replay.counts.n, this.counts().n)


@pytest.mark.parametrize(
    ("paper", "ours", "why", "status"),
    [
        ("13437", 13437, "", Status.EXACT),
        ("38.5", 38.5, "", Status.EXACT),
        ("53.6", 53.573, "", Status.ROUNDS),
        ("14.60", 14.6049, "", Status.ROUNDS),
        ("14.60", 14.6051, "", Status.WRONG),
        ("13437", 13438, "", Status.WRONG),
        ("7.2", 7.259, "cut off", Status.DISAGREES),
        ("7.2", 7.201, "cut off", Status.WRONG),  # an explained disagreement that has gone
        ("12.5", 12.45, "", Status.ROUNDS),
    ],
)
def test_a_claim_is_judged_by_the_digits_that_the_paper_prints(paper, ours, why, status):
    assert Claim("group", "says", "where", Decimal(paper), ours, why).status is status


def test_published_rows_have_a_cell_for_each_setting():
    paper = published()
    for row in (*paper.accuracy.values(), *paper.peak.values(), paper.totals.fedeas, paper.totals.full_balance):
        assert len(row) == 8
    assert set(paper.accuracy) == set(paper.peak)
    assert len(paper.accuracy) == 10


def test_published_tables_agree_with_each_other():
    """Numbers that the paper prints in two places."""
    paper = published()
    sweep, column = paper.beta_sweep, [each.id for each in paper.settings].index("c10-k20-a0.1")
    at_default = sweep.beta.index(paper.totals.beta)
    for method in ("fedeas", "uniform"):
        assert getattr(sweep, method)[at_default] == paper.accuracy[method][column]
    assert sweep.total[at_default] == paper.totals.fedeas[column]
    assert sweep.full_balance_total == paper.totals.full_balance[column]
    assert sweep.fedavg == paper.accuracy["fedavg"][column]
    assert sweep.full_balance == paper.accuracy["full-balance"][column]
    for method in ("fedeas", "uniform"):
        gains = [accuracy - sweep.fedavg for accuracy in getattr(sweep, method)]
        assert gains == list(getattr(sweep, f"{method}_gain"))
    assert paper.ablation.total[0] == sweep.total[sweep.beta.index(paper.ablation.beta)]
    alpha3 = [each.id for each in paper.settings].index(paper.combination.setting)
    assert paper.combination.fedeas == paper.peak["fedeas"][alpha3]
    assert paper.combination.scaffold == paper.peak["scaffold"][alpha3]
    assert round(paper.wall_clock.full_balance_minutes / paper.wall_clock.fedeas_minutes, 1) == paper.wall_clock.ratio


def test_peaks_are_above_the_last_rounds():
    paper = published()
    for method, row in paper.accuracy.items():
        for last, peak in zip(row, paper.peak[method], strict=True):
            assert last is None or last <= peak


def test_full_balance_costs_more_everywhere():
    for each in published().settings:
        assert FullBalance().allocate(each.counts()).total > FedEAS(12).allocate(each.counts()).total


@pytest.mark.parametrize(("is_printed", "head"), [(True, "paper"), (False, "recorded")])
def test_a_number_that_the_paper_does_not_print_is_not_headed_as_the_papers(is_printed, head):
    claims = [Claim("Group", "pairs", "-", Decimal(95), 95, is_printed=is_printed)]
    assert f"| {head} |" in claims_markdown(claims)
