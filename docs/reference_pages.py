"""The parts of the site that are made from the code: the list of commands, and the fields of a config."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click
from typer.main import get_command

from fedeas.cli import app
from fedeas.config import RunConfig


def commands() -> str:
    """All commands with their arguments and options, as Markdown, one heading each below the page's own."""
    command = get_command(app)
    with click.Context(command, info_name="fedeas") as context:
        text = get_docs_for_click(obj=command, ctx=context, name="fedeas")
    return _escaped(text.replace("# `fedeas`", "", 1))


def _escaped(text: str) -> str:
    """Defaults stand in [default: ...], which Markdown would take for a link."""
    return re.sub(r"\[((?:default|required|env var)[^\]]*)\]", r"\\[\1\\]", text)


def config_fields() -> str:
    """The sections of a config, each with its docstring and a table of its fields."""
    sections = {name: field.annotation for name, field in RunConfig.model_fields.items() if _is_section(field)}
    top = _table({name: field for name, field in RunConfig.model_fields.items() if name not in sections})
    return "\n\n".join(["## Top level", inspect.getdoc(RunConfig) or "", top, *map(_section, sections.items())])


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _section(named: tuple[str, type[BaseModel]]) -> str:
    name, section = named
    return "\n\n".join([f"## `[{name}]`", inspect.getdoc(section) or "", _table(section.model_fields)])


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = [f"| `{name}` | {_kind(field)} | `{_as_toml(field.default)}` |" for name, field in fields.items()]
    return "\n".join(["| field | values | default |", "|---|---|---|", *rows])


def _kind(field: FieldInfo) -> str:
    """The type of a field, or the words that it accepts."""
    options = getattr(field.annotation, "__args__", ())
    if options and all(isinstance(option, str) for option in options):
        return ", ".join(f"`{option}`" for option in options)
    limits = " and ".join(_limit(rule) for rule in field.metadata if _limit(rule))
    kinds = [kind.__name__ for kind in options or (field.annotation,) if kind is not type(None)]  # type: ignore[union-attr]
    return " or ".join(kinds) + (f" {limits}" if limits else "")


def _limit(rule: object) -> str:
    signs = {"ge": "≥", "gt": ">", "lt": "<", "le": "≤"}
    found = [(sign, getattr(rule, name)) for name, sign in signs.items() if getattr(rule, name, None) is not None]
    return " ".join(f"{sign} {limit:,}" for sign, limit in found if limit < 2**62)


def _as_toml(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


REFERENCE: dict[str, Callable[[], str]] = {"<!-- all commands -->": commands, "<!-- all fields -->": config_fields}
"""What a page of the site says where the marker stands."""
