"""The table of costs agrees with the plans and with the comparisons, which are computed elsewhere."""

from statistics import mean

import pytest

from reproduction.beyond import WHOLE, comparisons_in
from reproduction.costs import HEADS, economies_markdown
from reproduction.results import accuracy
from reproduction.studies import study
from reproduction.text import signed

PIXELS = {"digits": 8 * 8, "fashion-mnist": 28 * 28, "cifar-10": 32 * 32 * 3, "cifar100": 32 * 32 * 3}
EXPERIMENT, MADE, PLACED, SAME, LARGEST = HEADS


@pytest.fixture(scope="module")
def rows(kept):
    """The rows of the table, by their heads."""
    cells = [line.strip("| ").split(" | ") for line in economies_markdown(kept).split("\n\n")[0].splitlines()[2:]]
    return [dict(zip(HEADS, row, strict=True)) for row in cells]


def numbers(cell):
    """The two amounts of a cell, FedEAS's and the pool's."""
    return [float(text.split(" (")[0].replace(",", "")) for text in cell.split("; ")]


def test_sizes_follow_from_the_images(rows):
    for row in rows:
        pixels = PIXELS[row[EXPERIMENT].partition(",")[0].lower()]
        sizes = [float(text.split("(")[1].split()[0].replace(",", "")) for text in row[PLACED].split("; ")]
        assert sizes == pytest.approx([number * pixels / 1e6 for number in numbers(row[PLACED])], abs=0.006)
        assert all(made <= placed for made, placed in zip(numbers(row[MADE]), numbers(row[PLACED]), strict=True))


def test_a_pool_places_more_images_and_its_clients_train_for_more_steps(rows):
    for row in rows:
        own, pool = numbers(row[PLACED])
        assert own < pool
        assert float(row[PLACED].partition("), ")[2].removesuffix(" times the steps")) >= 1


def test_gains_are_those_of_the_comparisons(rows, packed):
    first = {}
    for found in packed:
        if found.protocol == "clean":
            first.setdefault((found.dataset, found.setup), found)
    expected = [
        f"{signed(each.difference.mean, 2)} ({each.difference.range_text(2)})"
        for found in first.values()
        for each in found.compared
        if each.method == WHOLE and not each.is_control
    ]
    assert [row[SAME] for row in rows] == expected


def test_a_pool_of_each_budget_is_compared_with_fedeas_at_its_largest(rows, kept):
    own = [row for row in rows if row[EXPERIMENT].startswith("digits")]
    chosen = study("digits", "clean")
    budgets = [each for each in comparisons_in(chosen, chosen.beyond[0]) if not each.equal_steps]
    assert [row[EXPERIMENT].split("beta = ")[1] for row in own] == [f"{each.beta:g}" for each in budgets]
    for row, each in zip(own, budgets, strict=True):
        runs = (each.runs[WHOLE], budgets[-1].runs["FedEAS"])
        levels = [mean(kept.values([run], accuracy).values()) for run in runs]
        assert row[LARGEST].startswith(f"{signed(levels[0] - levels[1], 2)} (")
    assert own[-1][SAME] == own[-1][LARGEST]
