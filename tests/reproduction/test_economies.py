"""The table of costs agrees with the plans and with the comparisons, which are computed elsewhere."""

from statistics import mean

import pytest

from reproduction.beyond import WHOLE, comparisons_in
from reproduction.costs import HEADS, HEADS_WITH_LESS, economies_markdown
from reproduction.results import accuracy
from reproduction.studies import study
from reproduction.text import signed

PIXELS = {"digits": 8 * 8, "fashion-mnist": 28 * 28, "cifar10": 32 * 32 * 3, "cifar100": 32 * 32 * 3}


@pytest.fixture(scope="module")
def parts(kept):
    """Titles and tables of the experiments, one after the other; what they mean; title and table of smaller budgets."""
    return economies_markdown(kept).split("\n\n")


@pytest.fixture(scope="module")
def rows(parts):
    """The rows of the experiments' tables, each with the dataset of its table."""
    found = []
    for title, table in batched(parts[:-3]):
        dataset = title.strip("*").partition(",")[0].lower().replace("cifar-10", "cifar10")
        found += [{**row, "dataset": dataset} for row in rows_of(table, HEADS)]
    return found


def rows_of(table, heads):
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [dict(zip(heads, row, strict=False)) for row in cells]


def batched(parts):
    return zip(parts[::2], parts[1::2], strict=True)


def number(text):
    return float(text.split(" (")[0].replace(",", ""))


def in_brackets(text):
    return number(text.split("(")[1].split()[0])


def test_sizes_follow_from_the_images(rows):
    for row in rows:
        assert in_brackets(row["placed"]) == pytest.approx(
            number(row["placed"]) * PIXELS[row["dataset"]] / 1e6, abs=0.006
        )
        assert number(row["images made"]) <= number(row["placed"])


def test_a_pool_places_more_images_and_its_clients_train_for_more_steps(rows):
    for own, pool in zip(rows[::2], rows[1::2], strict=True):
        assert number(own["placed"]) < number(pool["placed"])
        assert number(own["steps"]) < number(pool["steps"])


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
    assert [row[HEADS[-1]] for row in rows[1::2]] == expected


def test_a_pool_of_a_smaller_budget_is_compared_with_fedeas_at_its_largest(parts, kept):
    rows = [row for row in rows_of(parts[-1], HEADS_WITH_LESS) if row["experiment"].startswith("digits")]
    chosen = study("digits", "clean")
    *smaller, largest = [each for each in comparisons_in(chosen, chosen.beyond[0]) if not each.equal_steps]
    assert [row["for the pool"].split("beta = ")[1] for row in rows] == [f"{each.beta:g}" for each in smaller]
    for row, pool in zip(rows, smaller, strict=True):
        assert row["images made for FedEAS"].endswith(f"beta = {largest.beta:g}")
        assert number(row["for the pool"].split(" at")[0]) < number(row["images made for FedEAS"].split(" at")[0])
        levels = [mean(kept.values([run], accuracy).values()) for run in (pool.runs[WHOLE], largest.runs["FedEAS"])]
        assert row[HEADS_WITH_LESS[-1]].startswith(f"{signed(levels[0] - levels[1], 2)} (")
