"""Read a config: from a TOML file or by its name, with ``key=value`` overrides; say in words what is wrong with it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedeas.config.run import RunConfig
from fedeas.config.sections import Section
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import printable
from fedeas.core.records import checked_file, is_there
from fedeas.data.names import is_place

MAX_CONFIG_BYTES = 2**20
PACKAGED = Path(__file__).parent / "packaged"


def load_config(path: str | Path | None, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a TOML file (or start from the defaults) and apply ``section.key=value`` overrides.

    A config that comes with the package is given by its name, such as ``digits``.

    >>> load_config(None, ["train.lr=0.05", "policy=fedeas(beta=2)"]).train.lr
    0.05
    """
    content: dict[str, Any] = {} if path is None else _read_toml(config_file(path))
    for override in overrides:
        _apply(content, override)
    try:
        return checked_config(content, "the command line")
    except InputError:
        if path is not None:
            checked_config(_read_toml(config_file(path)), str(path))  # if the file is wrong by itself, this names it
        raise


def config_file(path: str | Path) -> Path:
    """The file of a config: a path, or the name of one that comes with the package.

    >>> config_file("digits").name
    'digits.toml'
    """
    packaged = PACKAGED / f"{path}.toml"
    is_name = str(path) in packaged_configs()
    return packaged if is_name and not Path(path).is_file() else Path(path)


def packaged_configs() -> list[str]:
    """Names of the configs that come with the package.

    >>> packaged_configs()[:2]
    ['digits', 'paper/cifar10-k100']
    """
    return sorted(file.relative_to(PACKAGED).with_suffix("").as_posix() for file in PACKAGED.rglob("*.toml"))


def checked_config(content: Mapping[str, Any], source: str = "the config") -> RunConfig:
    """The config with this content; `source` is named in errors.

    >>> checked_config({"partition": {"clients": 7}}).partition.clients
    7
    """
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}: {_in_words(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    if not is_there(path):
        dataset = f", or data.dataset={path} for a dataset" if is_place(str(path)) else ""
        raise InputError(f"{path}: no such file; give a TOML file or one of {', '.join(packaged_configs())}{dataset}")
    checked_file(path, MAX_CONFIG_BYTES)
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except RecursionError:
        raise InputError(f"{path}: cannot be read as TOML (nested too deeply)") from None
    except (ValueError, OSError) as error:  # of TOML, of UTF-8, and of numbers with thousands of digits
        raise InputError(f"{path}: cannot be read as TOML ({printable(error)})") from None


def _apply(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"override {_shortened(override)} is not of the form key=value, such as train.lr=0.05")
    *sections, name = key.strip().split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise InputError(f"override {_shortened(override)}: {_shortened(section)} is not a section")
    content[name] = _value(text.strip(), is_text=_holds_text(sections, name))


def _value(text: str, is_text: bool) -> Any:
    """The text as a TOML value; the text itself if it is not valid TOML, or if text is wanted, such as label=2024."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, KeyError, RecursionError):
        return text
    return text if is_text and not isinstance(value, str) else value


def _holds_text(sections: Iterable[str], name: str) -> bool:
    """Whether the key's value is text."""
    model: Any = RunConfig
    for key in (*sections, name):
        field = getattr(model, "model_fields", {}).get(key)
        model = None if field is None else field.annotation
    return model in (str, str | None)


def _in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = _nearest_key(key)
        return f"unknown key {_shortened(key)}" + (f"; did you mean {near!r}?" if near else "")
    if first["type"] == "value_error":  # raised by this module, with a full message
        return str(first["ctx"]["error"])
    return f"{key}: {first['msg']}, not {_shortened(first['input'])}"


def _shortened(value: object) -> str:
    """A value as it was given, shortened if it is long."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits have no text
        return f"this {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


OTHER_NAMES = {
    "learning_rate": "train.lr", "local_epochs": "train.epochs", "num_rounds": "rounds.total",
    "num_clients": "partition.clients", "fraction_fit": "rounds.participation", "model_name": "model.name",
    "beta": "policy",
}  # fmt: skip
"""What other tools call our keys."""


def _nearest_key(unknown: str) -> str | None:
    """The key, with its section, whose name is most like this one."""
    section, _, name = unknown.rpartition(".")
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    keys: dict[str, list[str]] = {}
    for key in _all_keys():
        keys.setdefault(key.rpartition(".")[2], []).append(key)
    near = difflib.get_close_matches(name, keys, n=1)
    # If several sections have it: the one that was given, or else none at all.
    return min(keys[near[0]], key=lambda key: (key.rpartition(".")[0] != section, len(key))) if near else None


def _all_keys() -> Iterator[str]:
    """All keys, those of a section as ``section.key``."""
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.default, Section):
            yield from (f"{name}.{key}" for key in type(field.default).model_fields)
        else:
            yield name
