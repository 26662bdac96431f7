"""Pieces of the report's HTML."""

from __future__ import annotations

from collections.abc import Sequence

from fedeas.core.foreign_text import for_html


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """A table whose cells are HTML already; a wide table scrolls in its own box."""
    heads = "".join(f"<th scope='col'>{for_html(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope='row'>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>\n" for row in rows
    )
    parts = f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody>"
    box = f"class='scroll' role='region' tabindex='0' aria-label='{caption}'"
    return f"<div {box}><table class='{kind}'>{parts}</table></div>"


def facts(values: dict[str, str]) -> str:
    """A list of names and values."""
    pairs = "".join(f"<div><dt>{for_html(key)}</dt><dd>{for_html(value)}</dd></div>" for key, value in values.items())
    return f"<dl>{pairs}</dl>" if pairs else ""


def figure(source: str, alt: str, caption: str = "", above: str = "") -> str:
    """A picture with text above and below it that is HTML already."""
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{above}<img src='{source}' alt='{for_html(alt)}'>{words}</figure>"


def number_of(count: int, name: str) -> str:
    """Format a count with its noun, such as "3 runs".

    >>> number_of(1, "run"), number_of(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {name}" + ("" if count == 1 else "s")
