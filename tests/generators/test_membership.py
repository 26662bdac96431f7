"""The membership attack on diffusion weights: its figures against slow definitions, and what it finds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas.core.errors import InputError
from fedeas.data.sources import load_dataset
from fedeas.generators.diffusion.presets import PRESETS, Network
from fedeas.generators.diffusion.sampling import DiffusionGenerator
from fedeas.generators.diffusion.trainer import Trainer
from fedeas.generators.diffusion.updates import LEVELS, image_losses
from fedeas.generators.gaussian import GaussianGenerator
from fedeas.generators.pools import SharedPool
from fedeas.generators.quality.membership import FEW, NOBODY, ONE_IN, Candidates, Membership, attack, scores

TINY = Network((8, 8), layers=1, attention=(False, False), groups=4)
RECIPE = replace(PRESETS["digits"], network=TINY, batch=16, lr=5e-3, ema=0.9, warm_up=10, class_dropout=0.0)
DIGITS = load_dataset("digits")
FIVE = tuple("01234")
ORDER = np.random.default_rng(0).permutation(np.flatnonzero(DIGITS.labels < 5))  # neighbours have one writer
SEEN, MANY = ((DIGITS.images[part], DIGITS.labels[part]) for part in (ORDER[:50], ORDER[50:]))
"""Images that the models of this test were trained on, and others."""

few_values = st.lists(st.integers(0, 9).map(float), min_size=2, max_size=25).map(np.array)


def trained(updates):
    trainer = Trainer(*SEEN, FIVE, RECIPE, updates=max(1, updates))
    for _ in range(updates):
        trainer.update()
    return DiffusionGenerator(trainer.averaged())


@pytest.fixture(scope="module")
def overfitted():
    return trained(240)


@pytest.fixture(scope="module")
def untrained():
    return trained(0)


def candidates(others=100):
    return Candidates.drawn(SEEN, MANY, others)


class TestTheFigures:
    @settings(max_examples=50, deadline=None)
    @given(few_values, few_values)
    def test_auc_is_the_share_of_pairs_in_which_the_member_has_the_higher_score(self, members, others):
        pairs = [(member > other) + (member == other) / 2 for member in members for other in others]
        found = Membership.of(members, others)
        assert found.auc == pytest.approx(np.mean(pairs))
        assert found.auc_interval[0] <= found.auc <= found.auc_interval[1]

    @settings(max_examples=20, deadline=None)
    @given(few_values, few_values)
    def test_its_interval_is_delongs(self, members, others):
        """The variances of the shares of pairs that each image wins, by their definition."""
        wins = np.array([[(member > other) + (member == other) / 2 for other in others] for member in members])
        variance = wins.mean(axis=1).var(ddof=1) / len(members) + wins.mean(axis=0).var(ddof=1) / len(others)
        low, high = wins.mean() - 1.959964 * variance**0.5, wins.mean() + 1.959964 * variance**0.5
        assert Membership.of(members, others).auc_interval == pytest.approx((max(0, low), min(1, high)), abs=1e-6)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 999), st.integers(ONE_IN, 3 * ONE_IN), st.integers(1, 400))
    def test_members_are_found_at_the_lowest_threshold_with_few_enough_false_alarms(self, seed, count, levels):
        stream = np.random.default_rng(seed)
        members, others = stream.integers(0, levels, 30) + 0.0, stream.integers(0, levels, count) + 0.0
        allowed = [line for line in range(-1, levels) if (others > line).sum() <= count / ONE_IN]
        assert Membership.of(members, others).found == (members > min(allowed)).mean()

    def test_fewer_others_are_too_few(self):
        found = Membership.of(np.ones(5), np.arange(ONE_IN - 1.0))
        assert (found.found, found.found_interval) == (None, None)
        assert "too few images: 999 of 1,000" in found.shown("found")

    def test_no_hits_and_all_hits_have_the_known_intervals(self):
        """Clopper and Pearson's bounds are powers in these two cases."""
        others, members = np.linspace(0, 1, ONE_IN), np.full(20, 2.0)
        bound = 0.025 ** (1 / 20)
        assert Membership.of(-members, others).found_interval == pytest.approx((0, 1 - bound))
        assert Membership.of(members, others).found_interval == pytest.approx((bound, 1))

    def test_intervals_of_normal_scores_cover_the_truth(self):
        """Of scores one apart in standard deviations, Phi(1 / sqrt 2) of the pairs are right."""
        stream, truth = np.random.default_rng(0), 0.7602
        intervals = [Membership.of(stream.normal(1, 1, 80), stream.normal(0, 1, 60)).auc_interval for _ in range(400)]
        assert 0.92 < np.mean([low <= truth <= high for low, high in intervals]) < 0.98


class TestTheAttack:
    def test_an_overfitted_model_betrays_its_images(self, overfitted):
        found = attack(overfitted, candidates(), "mine").overall
        assert (found.members, found.others) == (50, 100)
        assert found.auc_interval[0] > 0.55

    def test_an_untrained_model_tells_nothing(self, untrained):
        low, high = attack(untrained, candidates(), "mine").overall.auc_interval
        assert low < 0.5 < high

    def test_an_untrained_reference_changes_little_and_a_reference_that_knows_the_images_is_refused(
        self, overfitted, untrained
    ):
        assert attack(overfitted, candidates(), "mine", untrained.weights).overall.auc_interval[0] > 0.55
        about = {"seen": {"dataset": "mine", "parts": ["train"]}}
        with pytest.raises(InputError, match="must not have seen mine"):
            attack(overfitted, candidates(), "mine", replace(untrained.weights, provenance=about))

    def test_a_reference_is_compared_class_by_class_and_by_name(self, overfitted):
        """The model is its own reference, but for a class that the reference does not know by name."""
        drawn = candidates(40)
        other = DiffusionGenerator(replace(overfitted.weights, class_names=("another", *FIVE[1:])))
        found, known = scores(other, drawn, overfitted.weights), drawn.labels > 0
        assert not found[known].any()
        assert found[~known].all()

    def test_figures_of_a_client_come_from_its_images_alone(self, overfitted):
        """Client 0 has the images that were trained on, client 1 others, and client 2 hardly any."""
        images, labels = (np.concatenate([seen, other[:63]]) for seen, other in zip(SEEN, MANY, strict=True))
        parts = [np.arange(50), np.arange(50, 110), np.arange(110, 113)]
        others = MANY[0][63:], MANY[1][63:]
        drawn = Candidates.drawn((images, labels), others, 100, parts, "abc")
        report = attack(overfitted, drawn, "mine")
        assert (set(report.clients), report.small_clients) == ({"a", "b"}, 1)
        assert report.clients["a"].auc_interval[0] > 0.55
        assert report.clients["b"].auc_interval[0] < 0.5 < report.clients["b"].auc_interval[1]
        changed = replace(drawn, images=np.where((drawn.owners == 1)[:, None, None, None], 255, drawn.images))
        again = attack(overfitted, changed, "mine")
        assert again.clients["a"] == report.clients["a"]
        assert again.clients["b"] != report.clients["b"]
        shown = {name: value for name, value, _ in report.rows()}
        assert shown["auc, worst client"].endswith(": a")

    def test_the_loss_of_an_image_depends_on_no_other(self, overfitted):
        alone, together = (image_losses(overfitted.weights, MANY[0][:n], MANY[1][:n], batch=3) for n in (1, 7))
        assert together.shape == (len(LEVELS), 7)
        np.testing.assert_allclose(alone[:, 0], together[:, 0], rtol=1e-5)

    def test_scores_do_not_depend_on_how_hard_a_class_is(self, untrained):
        drawn = candidates(40)
        found = scores(untrained, drawn)
        means = [found[(drawn.owners == NOBODY) & (drawn.labels == label)].mean() for label in range(5)]
        np.testing.assert_allclose(means, 0, atol=1e-9)

    def test_wrapped_models_are_attacked_and_other_generators_are_not(self, untrained):
        few = candidates(30)
        assert attack(SharedPool(untrained), few, "mine") == attack(untrained, few, "mine")
        assert attack(GaussianGenerator.fit(*SEEN, 5, 4), few, "mine") is None

    def test_a_model_that_has_seen_the_test_images_is_not_attacked(self, untrained, caplog):
        about = {"seen": {"dataset": "mine", "parts": ["train", "test"]}}
        merged = DiffusionGenerator(replace(untrained.weights, provenance=about))
        assert attack(merged, candidates(30), "mine") is None
        assert "no membership attack" in caplog.text
        assert attack(merged, candidates(30), "another") is not None

    def test_classes_without_two_other_images_are_left_out(self, untrained):
        nine = MANY[0][MANY[1] == 0], MANY[1][MANY[1] == 0]
        assert set(Candidates.drawn(SEEN, nine, 100).labels) == {0}
        with pytest.raises(InputError, match="two test images"):
            attack(untrained, Candidates.drawn(SEEN, (nine[0][:1], nine[1][:1]), 100), "mine")


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 300), st.lists(st.integers(0, 120), min_size=1, max_size=6))
def test_clients_give_as_many_images_as_the_others_if_they_have_them(count, sizes):
    ends = np.cumsum(sizes)
    parts = [np.arange(last - size, last) for last, size in zip(ends, sizes, strict=True)]
    labels = np.zeros(ends[-1], np.int64)
    images = np.arange(ends[-1], dtype=np.int64)[:, None]
    other = np.full((400, 1), -1), np.zeros(400, np.int64)
    drawn = Candidates.drawn((images, labels), other, count, parts, range(len(parts)))
    each = max(FEW, -(-count // len(parts)))
    for client, part in enumerate(parts):
        own = drawn.images[drawn.owners == client, 0]
        assert len(set(own)) == len(own) == min(each, len(part))
        assert set(own) <= set(part)
    assert (drawn.images[drawn.owners == NOBODY] == -1).all()
    assert (drawn.owners == NOBODY).sum() == count
