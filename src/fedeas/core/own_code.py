"""Code of users by name: ``python:package.module:name``, also in the current folder, or what a package registers.

What stands for the code in fingerprints is the text in its `fingerprint` attribute or, without one, the source files
that it is named and defined in.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fedeas.core.digests import json_digest
from fedeas.core.errors import InputError, RunError, SpecError

PREFIX = "python:"
FORMAT = "fedeas-code-1"  # names what a digest of code is made of; part of it

ENTRY_POINTS = {
    "policy": "fedeas.policies",
    "algorithm": "fedeas.algorithms",
    "model": "fedeas.models",
    "generator": "fedeas.generators",
    "dataset": "fedeas.datasets",
}
"""The group of entry points in which a package registers its parts of each kind."""

_imported_sources: WeakKeyDictionary[ModuleType, tuple[Any, str]] = WeakKeyDictionary()
"""What a module's file was when it was first used here, with the ``__spec__`` that it had."""

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
NAME_PATTERN = rf"{PREFIX}{_DOTTED}:{_DOTTED}"

T = TypeVar("T")


def installed(kind: str) -> dict[str, str]:
    """The parts of a kind that packages register: plain name -> ``python:module:name``; nothing is imported."""
    from importlib.metadata import entry_points  # takes its time, and is rarely needed

    found = entry_points(group=ENTRY_POINTS[kind]) if kind in ENTRY_POINTS else ()
    return {each.name.lower().replace("_", "-"): f"{PREFIX}{each.module}:{each.attr}" for each in found}


def split_name(name: str, kind: str) -> tuple[str, str]:
    """Module and name of ``python:module:name``; an error if the text is not of that form."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise SpecError(f"{kind} spec {name!r}: expected {PREFIX}module:name, as in {PREFIX}package.module:function")
    _, module, inner = name.split(":")
    return module, inner


def find(spec: str, kind: str) -> tuple[ModuleType, Any]:
    """The module of ``python:module:name``, imported, and what it calls by the name; a file that changed is refused."""
    module_name, name = split_name(spec, kind)
    try:
        with current_folder_first():
            module = importlib.import_module(module_name)
    except Exception as error:  # a user's module can fail in any way
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):  # not something that it itself imports
            raise InputError(f"{spec}: no module {missing} in {Path.cwd()} nor among the installed ones") from None
        raise InputError(f"{spec}: importing {module_name} failed with {in_one_line(error)}") from error
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise InputError(f"{spec}: module {module_name} has no {name}") from None
    sources(spec, module, found)
    return module, found


def find_class(spec: str, kind: str, base: type[T]) -> type[T]:
    """The class that ``python:module:name`` names; an error unless it extends `base`."""
    _, found = find(spec, kind)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise SpecError(f"{spec} is no {kind}; name a class that extends {base.__module__}.{base.__name__}")
    return found


def find_callable(spec: str, kind: str) -> Any:
    """The function or class that ``python:module:name`` names."""
    _, found = find(spec, kind)
    if not callable(found):
        raise SpecError(f"{spec} is of type {type(found).__name__}; name a function or a class that makes a {kind}")
    return found


def code_digest(specs: Iterable[str], kind: str) -> str:
    """One hash of the code behind these ``python:module:name``; empty where there is none."""
    codes = []
    for spec in sorted(set(specs)):
        module, found = find(spec, kind)
        codes.append([spec, code(spec, found, sources(spec, module, found))])
    return json_digest([FORMAT, codes]) if codes else ""


def imported_code(spec: str) -> str:
    """Name the code and files that a user's part depends on and that its digest leaves out."""
    return f"{spec}: code that its module imports and files that it reads"


def code(spec: str, thing: Any, hashes: tuple[str, ...]) -> list[str]:
    """What stands for the code of a thing: its own fingerprint, or the hashes of its files."""
    own = getattr(thing, "fingerprint", None)
    if own is not None and not (isinstance(own, str) and own):
        raise InputError(f"{spec}: its fingerprint must be text, not {own!r}")
    if own is None and not hashes:
        raise InputError(f"{spec} has no source file; give it a fingerprint attribute")
    return list(hashes) if own is None else [own]


def sources(spec: str, module: ModuleType, *things: Any) -> tuple[str, ...]:
    """Hashes of the files that these things are named and defined in; none if one of them has no file."""
    homes = (sys.modules.get(getattr(thing, "__module__", None) or module.__name__, module) for thing in things)
    hashes = []
    for own in dict.fromkeys((module, *homes)):
        try:
            now = hashlib.sha256(Path(str(own.__file__)).read_bytes()).hexdigest()
        except (AttributeError, OSError):
            return ()
        loaded, before = _imported_sources.get(own, (None, now))
        if loaded is own.__spec__ and before != now:  # a module that is reloaded has a new one
            raise InputError(f"{spec}: {own.__file__} has changed since it was imported; restart to use what it is now")
        _imported_sources[own] = own.__spec__, now
        hashes.append(now)
    return tuple(hashes)


@contextmanager
def current_folder_first() -> Iterator[None]:
    """Import from the current folder first, as ``python -m`` does; what a module itself adds to the path stays."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def failed(spec: str, error: Exception) -> RunError:
    """The error to raise where a user's code has failed."""
    return RunError(f"{spec} failed with {in_one_line(error)}")


def in_one_line(error: Exception) -> str:
    """An error's type and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
