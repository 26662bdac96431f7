"""Characters that matplotlib's own font lacks, such as Japanese ones, in fonts that the machine has."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text

# Fonts of Linux, macOS and Windows. Colour fonts such as Apple Color Emoji are left out: matplotlib cannot draw them.
FALLBACKS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK KR", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR",
    "Source Han Sans", "IPAexGothic", "IPAGothic", "TakaoGothic", "Droid Sans Fallback", "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei", "Hiragino Sans", "Hiragino Sans GB", "Apple SD Gothic Neo", "Arial Unicode MS",
    "Yu Gothic", "Meiryo", "MS Gothic", "Microsoft YaHei", "SimHei", "Malgun Gothic",
    "Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Symbola",
)  # fmt: skip

_GLYPH = re.compile(r"Glyph (\d+) ")


def characters_missed(draw: Callable[[], object]) -> str:
    """Draw, and return the characters that no font had, each once; matplotlib would print a warning for each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw()
    missed = dict[str, None]()
    for each in caught:
        if glyph := _GLYPH.match(str(each.message)):
            missed[chr(int(glyph[1]))] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return "".join(missed)


def use_fallbacks(figure: Figure) -> bool:
    """Let a figure that was drawn take characters that its font lacks from others; False if the machine has none."""
    known = {font.name for font in fontManager.ttflist}
    others = [name for name in FALLBACKS if name in known]
    for text in figure.findobj(Text):
        text.set_fontfamily([*text.get_fontfamily(), *others])
    return bool(others)
