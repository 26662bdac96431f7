"""Parts of texts: numbers with a typographic minus sign, lists of names in a sentence, and tables in Markdown."""

from collections.abc import Iterable, Sequence

from fedeas.runs import Difference


def fixed(value: float, decimals: int) -> str:
    """Format a number with `decimals` decimals: ``−1,234.5``."""
    return f"{value:z,.{decimals}f}".replace("-", "−")


def signed(value: float, decimals: int) -> str:
    """The same with a sign for positive numbers, too: ``+1.25``."""
    return f"{value:+z,.{decimals}f}".replace("-", "−")


def mean_cell(found: Difference | None) -> str:
    """A mean with its 95 % interval; empty if there is none, as for one seed.

    >>> mean_cell(Difference(2.0, 0.5, 4)), mean_cell(Difference(2.0, None, 1))
    ('+2.00 (1.20 to 2.80)', '')
    """
    return "" if found is None or found.interval is None else f"{signed(found.mean, 2)} ({found.range_text(2)})"


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---") -> str:
    """A table in Markdown; `rule` below a head says how its column is aligned, the first column's to the left."""
    rules = ["---", *[rule] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rules, *rows))
