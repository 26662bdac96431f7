"""Objects with named fields: what each field may hold, and how they are written as text and read back.

A field declares its limits with its type: ``mu: NotNegative``. The text is ``fedeas(beta=12)`` or
``uniform(budget=fedeas(beta=12))``:

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
name   = word | python:module:name
value  = number | true | false | word | "text" | spec

Case, spaces, the order of fields, and hyphens or underscores in names make no difference. Equal objects have one
spec, however they were spelled: equal numbers print alike.

Code of users goes by a name, too: ``python:package.module:name``, also in the current folder, or what a package
registers. What stands for the code in fingerprints is the text in its `fingerprint` attribute or, without one, the
source files that it is named and defined in.
"""

import ast
import hashlib
import importlib
import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from types import ModuleType, NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

import numpy as np

from fedeas.core.arrays import json_digest
from fedeas.core.errors import FedEASError, InputError, RunError, SpecError

PACKAGE = __name__.partition(".")[0]
MAX_WHOLE = 1e15  # below it every whole number is exact as a float
MAX_LENGTH = 100_000
MAX_NESTING = 100  # specs are read and written by recursion
MAX_SHOWN = 500  # of a spec, and of what is wrong with it, in errors

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

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ATOM = re.compile(rf'(?:{NAME_PATTERN}|{_NUMBER}|{_WORD.pattern}|"[^"]*")(?=[(),=\s]|\Z)')
_READABLE = re.compile(rf"(?:{_ATOM.pattern}|[(),=\s])*")


class Limit(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


def _plain(words: str, *types: type) -> Limit:
    return Limit(words, lambda value: isinstance(value, types) and isinstance(value, bool) == (bool in types))


PLAIN: dict[Any, Limit] = {
    bool: _plain("true or false", bool),
    int: _plain("a whole number", int, np.integer),
    float: _plain("a number", int, float, np.number),
    str: _plain("text", str),
}
"""The limits of plain types."""


def number(words: str, within: Callable[[Any], bool]) -> Limit:
    """A finite number within some bounds."""
    return Limit(words, lambda value: PLAIN[float].holds(value) and abs(value) < math.inf and within(value))


def whole(least: int) -> Limit:
    """A whole number with a lower bound."""
    return Limit(f"a whole number, {least} or more", lambda value: PLAIN[int].holds(value) and value >= least)


Positive = Annotated[float, number("a finite number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, number("a finite number, 0 or more", lambda value: value >= 0)]

MAX_SINGLE = (2 - 2**-23) * 2.0**127
"""The largest number of 32 bits, which torch computes with."""
PositiveSingle = Annotated[
    float, number(f"a number above 0 and at most {MAX_SINGLE:.2g}", lambda value: 0 < value <= MAX_SINGLE)
]
NotNegativeSingle = Annotated[
    float, number(f"a number from 0 to {MAX_SINGLE:.2g}", lambda value: 0 <= value <= MAX_SINGLE)
]


def check_fields(owner: object, error: type[FedEASError] = InputError) -> None:
    """Refuse values beyond the limits of their fields, and words that are none of a field's choices."""
    kind: Any = type(owner)
    for name, limit in _limits(kind).items():
        if not limit.holds(value := getattr(owner, name)):
            raise error(f"{name} must be {limit.words}, not {value!r}")


@cache
def _limits(kind: type) -> dict[str, Limit]:
    found = {name: _limit_of(hint) for name, hint in _types(kind, with_limits=True).items()}
    return {name: limit for name, limit in found.items() if limit is not None}


def _limit_of(hint: Any) -> Limit | None:
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        return Limit(" or ".join(repr(each) for each in choices if each != ""), lambda value: value in choices)
    if NoneType in choices and len(choices) == 2:  # X | None
        inner = _limit_of(choices[0]) or _limit_of(choices[1])
        return None if inner is None else Limit(inner.words, lambda value: value is None or inner.holds(value))
    limits = (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Limit))
    return next(limits, PLAIN.get(hint))


@cache
def _types(kind: type, with_limits: bool = False) -> dict[str, Any]:
    """The types of the fields; none if they cannot be resolved, as in a class that is local to a function."""
    try:
        return get_type_hints(kind, include_extras=with_limits)
    except NameError:
        return {}


class Described:
    """Base of frozen dataclasses whose fields are hyperparameters and that have a name and a spec."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def name(cls) -> str:
        """The name in specs: ``FullBalance`` is ``full-balance``, ``FedEAS`` is ``fedeas``.

        Of a class from elsewhere, ``python:`` with the module and the name by which it can be imported.
        """
        if cls.__module__.partition(".")[0] != PACKAGE and "<locals>" not in cls.__qualname__:
            return f"{PREFIX}{cls.__module__}:{cls.__qualname__}"
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__.replace("Fed", "fed")).lower().replace("fed-", "fed")

    @property
    def spec(self) -> str:
        """One line that `read_spec` reads: the first field, if not empty, and all that differ from their default."""
        kind: Any = type(self)
        types = _types(kind)
        shown = {
            field.name: _written(getattr(self, field.name), types.get(field.name))
            for position, field in enumerate(fields(self))
            if (position == 0 and field.default != "") or getattr(self, field.name) != field.default
        }
        return _joined(self.name(), shown)

    def __str__(self) -> str:
        return self.spec


T = TypeVar("T")
D = TypeVar("D", bound=Described)


@dataclass(frozen=True)
class Call:
    """A spec as it is written, with nothing looked up: a name and its arguments."""

    name: str
    arguments: dict[str, Any]

    @property
    def keywords(self) -> dict[str, object]:
        """The arguments for a function that knows nothing of specs: what looks like a nested spec is text."""
        return {name: value.spec if isinstance(value, Call) else value for name, value in self.arguments.items()}

    @property
    def spec(self) -> str:
        """The one spelling of it: arguments in the order of their names, all words in quotes."""
        given = sorted(self.arguments.items())
        return _joined(self.name, {k: f'"{v}"' if isinstance(v, str) else _written(v) for k, v in given})


def _joined(name: str, shown: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{field}={value}' for field, value in shown.items())})" if shown else name


def _written(value: Any, kind: Any = None) -> str:
    """A value as text; `kind` is the type of its field, which decides whether True is a number or a word."""
    if isinstance(value, Described | Call):
        return value.spec
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else f'"{value}"'
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) or (isinstance(plain, int) and float in (kind, *get_args(kind))):
        return repr(_shortest(float(plain)))
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def _shortest(number: float) -> int | float:
    """The number as an int if that is exact."""
    return int(number) if number.is_integer() and abs(number) < MAX_WHOLE else number


def read_spec(
    text: str,
    known: Mapping[str, type[D]],
    kind: str,
    base: type[Described] = Described,
    from_own_code: Callable[[str], D] | None = None,
    left_out: Mapping[str, object] | None = None,
) -> D:
    """Read a spec as an object of one of the `known` classes; `kind` names them in errors.

    `left_out` has values for fields that the spec does not set; specs inside it do not get them.

    It may also be of a class that extends `base` and stands elsewhere: ``python:module:name``, or the name by which an
    installed package registers it. With `from_own_code` such a name takes no arguments, and this function makes the
    object of it.
    """
    reader = _Reader(text, known, kind, base, from_own_code)
    described: D = reader.described(reader.whole, left_out)
    return described


def read_call(text: str, known: Container[str], kind: str) -> Call:
    """A spec as it is written: no code is imported, and the arguments are not checked."""
    reader = _Reader(text, known, kind)
    return reader.call(reader.whole)


def canonical_spec(text: str, known: Mapping[str, type[Any]], kind: str) -> str:
    """The one spelling of a spec. No code outside this package is imported, so own parts are not checked.

    >>> canonical_spec("python:mine:Half( share=0.50 )", {}, "policy")
    'python:mine:Half(share=0.5)'
    """
    reader = _Reader(text, known, kind)
    return str((reader.call if reader.names_own(reader.whole) else reader.described)(reader.whole).spec)


def own_code_in(text: str) -> tuple[str, ...]:
    """All ``python:module:name`` of a spec in its one spelling.

    >>> own_code_in("uniform(budget=python:mine:Half(share=0.5))")
    ('python:mine:Half',)
    """
    return tuple(re.findall(NAME_PATTERN, re.sub(r'"[^"]*"', "", text)))


def refuse_class(given: object, what: str) -> None:
    """Refuse a class where an object of it is wanted, which has parameters."""
    if isinstance(given, type):
        raise InputError(f"{what} {given.__name__} is a class; give an object of it, such as {given.__name__}(...)")


def own_code_named(name: str, known: Container[str], kind: str) -> str | None:
    """The ``python:module:name`` that a name stands for; None if it is one of the `known`, or nobody's."""
    return _Reader("", known, kind).own(name)


def normalised(name: str) -> str:
    """The name in lower case, with hyphens for underscores: spellings of one name become equal."""
    return name.strip().lower().replace("_", "-")


@dataclass
class _Reader:
    """Reads one spec. Python's own parser finds its structure: a spec is a call with keyword arguments.

    Names such as ``full-balance``, ``python:module:name`` and ``in`` are no names in Python. So the parser sees an x
    for each character of a name or a value, and these are put back at the places that it reports.
    """

    text: str
    known: Any
    kind: str
    base: type[Any] = Described
    from_own_code: Callable[[str], Any] | None = None

    @cached_property
    def registered(self) -> dict[str, str]:
        """What installed packages register; looking through them takes its time."""
        return installed(self.kind)

    @cached_property
    def whole(self) -> Call:
        """The whole spec, parsed; its values are calls without arguments."""
        if len(self.text) > MAX_LENGTH:
            raise SpecError(f"{self.kind} spec of {len(self.text)} characters; give at most {MAX_LENGTH}")
        self.text = self.text.strip()
        if not self.text:
            raise self._error(f"expected a {self.kind} name")
        if unreadable := _READABLE.sub("", self.text, count=1):
            raise self._error(f"cannot read {unreadable[:20]!r}")
        masked = re.sub(r"\s", " ", _ATOM.sub(lambda atom: "x" * len(atom[0]), self.text))
        if max(accumulate((each == "(") - (each == ")") for each in masked)) > MAX_NESTING:
            raise self._error("too many nested parentheses")
        try:
            return self._parsed(ast.parse(masked, mode="eval").body)
        except SyntaxError as error:
            rest = self.text[(error.offset or 1) - 1 :][:20]
            raise self._error(f"{error.msg.split('.')[0]} at {rest!r}; write name(field=value, ...)") from None

    def _parsed(self, node: ast.expr) -> Call:
        word, keywords = (node.func, node.keywords) if isinstance(node, ast.Call) and not node.args else (node, [])
        if not isinstance(word, ast.Name):
            written = self.text[node.col_offset : node.end_col_offset]
            raise self._error(f"cannot read {written[:40]!r}; write name(field=value, ...)")
        arguments = dict[str, Call]()
        for keyword in keywords:
            written = self.text[keyword.col_offset : keyword.col_offset + len(str(keyword.arg))]
            field = normalised(written).replace("-", "_")
            if field in arguments:
                raise self._error(f"{field!r} is given twice")
            arguments[field] = self._parsed(keyword.value)
        return Call(self.text[word.col_offset : word.end_col_offset], arguments)

    def own(self, name: str) -> str | None:
        """The ``python:module:name`` that a name stands for, if it does."""
        if name.startswith(PREFIX):
            return name
        plain = normalised(name)
        return None if plain in self.known or not _WORD.fullmatch(plain) else self.registered.get(plain)

    def names_own(self, part: Call) -> bool:
        """Whether this or a part of it stands for a user's own code."""
        return self.own(part.name) is not None or any(map(self.names_own, part.arguments.values()))

    def _name(self, part: Call) -> str:
        """A known name or ``python:module:name``."""
        name = self.own(part.name) or normalised(part.name)
        if not name.startswith(PREFIX) and name not in self.known:
            names = ", ".join([*self.known, *self.registered])
            raise self._error(f"unknown {self.kind} {name!r}; known are {names}")
        return name

    def call(self, part: Call) -> Call:
        """The spec as it is written."""
        given = part.arguments.items()
        return Call(self._name(part), {field: self._value(value, Described, self.call) for field, value in given})

    def described(self, part: Call, left_out: Mapping[str, object] | None = None) -> Any:
        """The object that a spec describes."""
        name = self._name(part)
        kind: Any = self.known.get(name)
        if kind is None and self.from_own_code is not None:
            if part.arguments:
                raise self._error(f"{name} takes no arguments here")
            return self.from_own_code(name)
        if kind is None and not is_dataclass(kind := find_class(name, self.kind, self.base)):
            raise self._error(f"{name} has no fields; make it a frozen dataclass")
        types, has = _types(kind), {field.name: field for field in fields(kind)}
        given = {field: self._value(each, types.get(field), self.described) for field, each in part.arguments.items()}
        given = {**(left_out or {}), **given}
        if unknown := [field for field in given if field not in has]:
            raise self._error(f"{kind.name()} has no field {unknown[0]!r}; it has {', '.join(has) or 'none'}")
        needed = (name for name, each in has.items() if each.default is each.default_factory is MISSING)
        if missing := [field for field in needed if field not in given]:
            raise self._error(f"{kind.name()} needs {', '.join(missing)}, as in {kind.name()}({missing[0]}=...)")
        try:
            made = kind(**given)
            check_fields(made)  # one's own class may not do it
            return made
        except FedEASError as error:
            raise self._error(str(error)) from None
        except Exception as error:
            if kind.__module__.partition(".")[0] == PACKAGE:
                raise
            raise self._error(in_one_line(error)) from error

    def _value(self, part: Call, kind: Any, read: Callable[[Call], object]) -> object:
        """A value; the type of its field decides if a word is text, a choice, true or false, or a part to `read`."""
        word, types = part.name, get_args(kind)
        plain = normalised(word)
        choices = {normalised(str(each)): each for each in types}  # of a Literal; a type has no such name
        if plain in choices and not part.arguments:
            return choices[plain]
        takes_parts = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *types))
        is_own = word.startswith(PREFIX) or (takes_parts and self.own(word) is not None)  # others are not looked up
        if kind is not str and (plain in self.known or is_own):
            return read(part)
        if part.arguments:
            raise self._error(f"{word} takes no arguments here")
        if word[0] == '"':
            return word[1:-1]
        if word[0].isalpha():
            return plain == "true" if kind is not str and plain in ("true", "false") else word
        try:
            number = float(word)
            is_exact = re.fullmatch(r"[-+]?[\d_]+", word) and abs(number) < 2**63
            return int(word) if is_exact else _shortest(number)
        except ValueError:  # such as 1__0 and 1_
            raise self._error(f"cannot read the number {word!r}") from None

    def _error(self, message: str) -> SpecError:
        text, message = (each if len(each) <= MAX_SHOWN else f"{each[:MAX_SHOWN]}..." for each in (self.text, message))
        return SpecError(f"{self.kind} spec {text!r}: {message}")


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
