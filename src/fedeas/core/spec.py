"""Objects with named fields: what each field may hold, and how they are written as text and read back.

A field declares its limits with its type: ``mu: NotNegative``. The text is ``fedeas(beta=12)`` or
``uniform(budget=fedeas(beta=12))``:

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
name   = word | python:module:name
value  = number | true | false | word | "text" | spec

Case, spaces, the order of fields, and hyphens or underscores in names make no difference. Equal objects have one
spec, however they were spelled: equal numbers print alike.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, cached_property
from itertools import accumulate
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fedeas.core.errors import FedEASError, InputError, SpecError
from fedeas.core.own_code import NAME_PATTERN, PREFIX, find_class, in_one_line, installed

PACKAGE = __name__.partition(".")[0]
MAX_WHOLE = 1e15  # below it every whole number is exact as a float
MAX_LENGTH = 100_000
MAX_NESTING = 100  # specs are read and written by recursion
MAX_SHOWN = 500  # of a spec, and of what is wrong with it, in errors

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


D = TypeVar("D", bound=Described)


@dataclass(frozen=True)
class Call:
    """A spec as it is written, with nothing looked up: a name and its arguments."""

    name: str
    arguments: dict[str, object]

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
    has_own = any(isinstance(node, ast.Name) and reader.own(node.id) for node in ast.walk(reader.whole))
    return str((reader.call if has_own else reader.described)(reader.whole).spec)


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
    def whole(self) -> ast.expr:
        """The whole spec, parsed."""
        if len(self.text) > MAX_LENGTH:
            raise SpecError(f"{self.kind} spec of {len(self.text)} characters; give at most {MAX_LENGTH}")
        self.text = self.text.strip()
        if not self.text:
            raise self._error(f"expected a {self.kind} name")
        if unreadable := _READABLE.sub("", self.text, count=1):
            raise self._error(f"cannot read {unreadable[:20]!r}")
        masked = re.sub(r"\s", " ", _ATOM.sub(lambda atom: "x" * len(atom[0]), self.text))
        try:
            if max(accumulate((each == "(") - (each == ")") for each in masked)) > MAX_NESTING:
                raise RecursionError
            parsed = ast.parse(masked, mode="eval").body
        except SyntaxError as error:
            rest = self.text[(error.offset or 1) - 1 :][:20]
            raise self._error(f"{error.msg.split('.')[0]} at {rest!r}; write name(field=value, ...)") from None
        except (MemoryError, RecursionError):
            raise self._error("too many nested parentheses") from None
        for node in ast.walk(parsed):
            if isinstance(node, ast.Name):
                node.id = self.text[node.col_offset : node.end_col_offset]
            elif isinstance(node, ast.keyword):
                node.arg = self.text[node.col_offset : node.col_offset + len(str(node.arg))]
        return parsed

    def _split(self, node: ast.expr) -> tuple[str, dict[str, ast.expr]]:
        """A name or value, and the arguments in its parentheses."""
        match node:
            case ast.Name(name):
                return name, {}
            case ast.Call(ast.Name(name), [], keywords):
                given = [normalised(str(keyword.arg)).replace("-", "_") for keyword in keywords]
                for field, times in Counter(given).items():
                    if times > 1:
                        raise self._error(f"{field!r} is given twice")
                return name, {field: keyword.value for field, keyword in zip(given, keywords, strict=True)}
        written = self.text[node.col_offset : node.end_col_offset]
        raise self._error(f"cannot read {written[:40]!r}; write name(field=value, ...)")

    def own(self, name: str) -> str | None:
        """The ``python:module:name`` that a name stands for, if it does."""
        if name.startswith(PREFIX):
            return name
        plain = normalised(name)
        return None if plain in self.known or not _WORD.fullmatch(plain) else self.registered.get(plain)

    def _named(self, node: ast.expr) -> tuple[str, dict[str, ast.expr]]:
        """A known name or ``python:module:name``, and its arguments."""
        word, arguments = self._split(node)
        name = self.own(word) or normalised(word)
        if not name.startswith(PREFIX) and name not in self.known:
            names = ", ".join([*self.known, *self.registered])
            raise self._error(f"unknown {self.kind} {name!r}; known are {names}")
        return name, arguments

    def call(self, node: ast.expr) -> Call:
        """The spec as it is written."""
        name, arguments = self._named(node)
        return Call(name, {field: self._value(value, Described, self.call) for field, value in arguments.items()})

    def described(self, node: ast.expr, left_out: Mapping[str, object] | None = None) -> Any:
        """The object that a spec describes."""
        name, arguments = self._named(node)
        kind: Any = self.known.get(name)
        if kind is None and self.from_own_code is not None:
            if arguments:
                raise self._error(f"{name} takes no arguments here")
            return self.from_own_code(name)
        if kind is None and not is_dataclass(kind := find_class(name, self.kind, self.base)):
            raise self._error(f"{name} has no fields; make it a frozen dataclass")
        types = _types(kind)
        given = {field: self._value(value, types.get(field), self.described) for field, value in arguments.items()}
        return self._made(kind, {**(left_out or {}), **given})

    def _value(self, node: ast.expr, kind: Any, part: Callable[[ast.expr], object]) -> object:
        """A value; the type of its field decides if a word is text, a choice, true or false, or a `part`."""
        word, _ = self._split(node)
        plain, types = normalised(word), get_args(kind)
        choices = {normalised(str(each)): each for each in types}  # of a Literal; a type has no such name
        if plain in choices and isinstance(node, ast.Name):
            return choices[plain]
        takes_parts = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *types))
        is_own = word.startswith(PREFIX) or (takes_parts and self.own(word) is not None)  # others are not looked up
        if kind is not str and (plain in self.known or is_own):
            return part(node)
        if isinstance(node, ast.Call):
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

    def _made(self, kind: type[Any], arguments: dict[str, object]) -> Any:
        known = {field.name: field for field in fields(kind)}
        for name in arguments:
            if name not in known:
                raise self._error(f"{kind.name()} has no field {name!r}; it has {', '.join(known) or 'none'}")
        needed = (name for name, each in known.items() if each.default is each.default_factory is MISSING)
        missing = [name for name in needed if name not in arguments]
        if missing:
            raise self._error(f"{kind.name()} needs {', '.join(missing)}, as in {kind.name()}({missing[0]}=...)")
        try:
            made = kind(**arguments)
            check_fields(made)  # one's own class may not do it
            return made
        except FedEASError as error:
            raise self._error(str(error)) from None
        except Exception as error:
            if kind.__module__.partition(".")[0] == PACKAGE:
                raise
            raise self._error(in_one_line(error)) from error

    def _error(self, message: str) -> SpecError:
        text, message = (each if len(each) <= MAX_SHOWN else f"{each[:MAX_SHOWN]}..." for each in (self.text, message))
        return SpecError(f"{self.kind} spec {text!r}: {message}")
