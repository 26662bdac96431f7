"""Names in scripts that the default font lacks are drawn with other fonts, or a warning says that none has them."""

import warnings

import pytest
from matplotlib.figure import Figure

from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import FullBalance
from fedeas.views import figures
from fedeas.views.figures import plan_figure, save

RARE = "⌖"  # STIXGeneral has it, which comes with matplotlib, and the default font does not


def drawn(names):
    counts = LabelCounts([[3, 80], [1000, 3]], names)
    return plan_figure(counts, FullBalance().allocate(counts))


def saved(path, names):
    save(drawn(names), path)
    return path.read_bytes()


@pytest.mark.parametrize(("ending", "others", "lines"), [("png", (), 1), ("png", ("STIXGeneral",), 0), ("svg", (), 0)])
def test_one_line_tells_what_no_font_has(tmp_path, monkeypatch, caplog, ending, others, lines):
    monkeypatch.setattr(figures, "FALLBACKS", others)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's own
        saved(tmp_path / f"figure.{ending}", ["Köln", RARE])
    assert [f"Glyph {ord(RARE)}" in record.getMessage() for record in caplog.records if record.name == "fedeas"] == [
        True
    ] * lines


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_other_fonts_change_no_figure_that_does_not_need_them(tmp_path, monkeypatch, ending):
    usual = saved(tmp_path / f"usual.{ending}", ["Köln", "Łódź"])
    monkeypatch.setattr(figures, "FALLBACKS", ("STIXGeneral",))
    assert saved(tmp_path / f"more.{ending}", ["Köln", "Łódź"]) == usual


def test_warnings_about_other_things_are_told_too(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **more: (path.touch(), warnings.warn("too tight", stacklevel=2))
    )
    save(drawn(None), tmp_path / "figure.png")
    assert [f"{tmp_path / 'figure.png'}: too tight" in record.getMessage() for record in caplog.records] == [True]
