"""Names from files are shown as text everywhere and are never interpreted."""

import csv
import io
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedeas import Allocation, FedEAS, LabelCounts, read_counts, write_allocation, write_counts
from fedeas.cli import main
from fedeas.cli.display import comparison_table, foreign_text
from fedeas.core.foreign_text import for_csv, for_html, from_csv, printable
from fedeas.planning.request import compare_policies

HOSTILE = [
    "[/]",
    "[red]x[/red]",
    ":warning:",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07",
    "two\nlines",
    "\u202eesrever",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    '=HYPERLINK("http://example.org")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "'=quoted",
    "$\\frac{$",
    "a\\",
    "\x00\x7f\x9b31m",
]


@given(st.text())
def test_printable_text_is_one_line_without_control_characters(text):
    shown = printable(text)
    assert {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"} == set()
    assert printable(shown) == shown


@given(st.text())
def test_html_reads_back_as_the_text_alone(text):
    found, tags = [], []
    parser = HTMLParser()
    parser.handle_data, parser.handle_starttag = found.append, lambda *tag: tags.append(tag)
    parser.feed(for_html(text))
    parser.close()
    assert ("".join(found), tags) == (printable(text), [])


@given(st.text() | st.sampled_from(HOSTILE))
def test_a_cell_of_a_csv_file_reads_back_and_is_never_a_formula(text):
    cell = for_csv(text)
    assert from_csv(cell) == text
    assert cell[:1] not in ("=", "@", "\t", "\r", "\n")
    if cell[:1] in ("+", "-"):
        assert cell[1:].replace(".", "").isdigit()


@given(st.text(max_size=30) | st.sampled_from(HOSTILE))
def test_a_terminal_shows_the_text_itself(text):
    console = Console(file=io.StringIO(), width=500, force_terminal=True, color_system=None)
    console.print(foreign_text(text), end="", soft_wrap=True)
    assert console.file.getvalue() == printable(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_plan_shows_and_writes_any_name(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    counts = LabelCounts([[90, 1], [1, 50]], clients=[name, "b"], classes=[name, "x"])
    write_counts(tmp_path / "counts.parquet", counts)
    plan(f"{tmp_path}/counts.parquet", "--compare", "--out", f"{tmp_path}/plan.csv")
    shown = capsys.readouterr().out
    assert not any(unicodedata.category(letter) == "Cc" for letter in shown.replace("\n", ""))
    assert "".join(printable(name).split()) in "".join(shown.replace("│", "").split())
    with (tmp_path / "plan.csv").open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


def plan(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["plan", *arguments])
    assert stopped.value.code == 0


def test_any_name_can_be_plotted(tmp_path):
    counts = LabelCounts(np.eye(len(HOSTILE), dtype=int) + 1, clients=HOSTILE, classes=HOSTILE)
    write_counts(tmp_path / "counts.parquet", counts)
    plan(f"{tmp_path}/counts.parquet", "--plot", f"{tmp_path}/plan.svg")
    assert (tmp_path / "plan.svg").stat().st_size


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\x00" not in name])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_any_name_survives_a_round_trip(tmp_path, name, ending):
    counts = LabelCounts([[90, 1], [1, 50]], clients=[name, "b"], classes=["x", name])
    write_counts(tmp_path / f"counts.{ending}", counts)
    assert read_counts(tmp_path / f"counts.{ending}") == counts
    write_allocation(tmp_path / f"plan.{ending}", counts, FedEAS().allocate(counts))


def test_a_comparison_shows_a_policys_name_as_text():
    counts = LabelCounts([[90, 1], [1, 50]])
    console = Console(file=io.StringIO(), width=200)
    named = Allocation([[0, 3], [2, 0]], "[/]")
    console.print(comparison_table(counts, compare_policies(counts, FedEAS(), named), named))
    assert "[/]" in console.file.getvalue()


def test_an_error_is_one_line_without_control_characters(tmp_path, capsys):
    (tmp_path / "bad.csv").write_text('client,x,y\n"\x1b[31mred\n[/]",1,-2\n')
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(tmp_path / "bad.csv")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\x1b" not in error
