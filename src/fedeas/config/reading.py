"""Read a config: from a TOML file or by its name, with ``key=value`` overrides; say in words what is wrong with it."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedeas.config.run import RunConfig
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
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError(f"override {_shortened(override)} is not of the form key=value, such as train.lr=0.05")
        *sections, name = key.strip().split(".")
        place = section_in(content, sections, f"override {_shortened(override)}")
        place[name] = text.strip()
        # The value is read as TOML, or as text if it is no TOML or if text is wanted, as in label=2024.
        with suppress(ValueError, KeyError, RecursionError):
            value = tomllib.loads(f"value = {text}")["value"]
            if isinstance(value, str) or reduce(_kind, [*sections, name], RunConfig) not in (str, str | None):
                place[name] = value
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
    is_name = str(path) in packaged_configs() and not Path(path).is_file()
    return PACKAGED / f"{path}.toml" if is_name else Path(path)


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
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        fact = f"{key}: {first['msg']}, not {_shortened(first['input'])}"
        if first["type"] == "extra_forbidden":
            flat, (section, _, name) = RunConfig().flat, key.rpartition(".")
            places = {known.rpartition(".")[2]: known for known in reversed(flat)}
            like = next(iter(difflib.get_close_matches(name, places, n=1)), "")
            near = f"{section}.{like}" if f"{section}.{like}" in flat else places.get(like)
            fact = f"unknown key {_shortened(key)}" + (f"; did you mean {near!r}?" if near else "")
        elif first["type"] == "value_error":  # raised by a check of ours, with a full message
            fact = str(first["ctx"]["error"])
        raise InputError(f"{source}: {fact}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    if not is_there(path):
        dataset = f", or data.dataset={path} for a dataset" if is_place(str(path)) else ""
        raise InputError(f"{path}: no such file; give a TOML file or one of {', '.join(packaged_configs())}{dataset}")
    checked_file(path, MAX_CONFIG_BYTES)
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:  # of TOML, of UTF-8, and of numbers with thousands of digits
        reason = "nested too deeply" if isinstance(error, RecursionError) else printable(error)
        raise InputError(f"{path}: cannot be read as TOML ({reason})") from None


def section_in(content: dict[str, Any], sections: Iterable[str], setting: str) -> dict[str, Any]:
    """The place of a setting in the content of a config; `setting` is named in errors."""
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise InputError(f"{setting}: {_shortened(section)} is not a section")
    return content


def _kind(section: Any, key: str) -> Any:
    """The type of a key's value; None if there is no such key."""
    return getattr(getattr(section, "model_fields", {}).get(key), "annotation", None)


def _shortened(value: object) -> str:
    """A value as it was given, shortened if it is long."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits have no text
        return f"this {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
