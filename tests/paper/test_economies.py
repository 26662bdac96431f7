"""The table of costs agrees with the plans and with the comparisons, which are computed elsewhere."""

import pytest

from fedeas.paper.beyond import WHOLE
from fedeas.paper.economies import HEADS, economies_markdown
from fedeas.runs.comparison import signed

PIXELS = {"digits": 8 * 8, "fashion-mnist": 28 * 28, "cifar10": 32 * 32 * 3, "cifar100": 32 * 32 * 3}


@pytest.fixture(scope="module")
def rows(kept):
    """The rows of all tables, each with the dataset of its table."""
    found = []
    for title, table in batched(economies_markdown(kept).split("\n\n")[:-1]):
        dataset = title.strip("*").partition(",")[0].lower().replace("cifar-10", "cifar10")
        cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        found += [{**dict(zip(HEADS, row, strict=False)), "dataset": dataset} for row in cells]
    return found


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
