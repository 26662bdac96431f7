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
from functools import cache
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

    def or_none(self) -> Limit:
        """The same limit for a field that may be empty."""
        return Limit(self.words, lambda value: value is None or self.holds(value))


PLAIN: dict[Any, Limit] = {
    bool: Limit("true or false", lambda value: isinstance(value, bool)),
    int: Limit("a whole number", lambda value: isinstance(value, int | np.integer) and not isinstance(value, bool)),
    float: Limit("a number", lambda value: isinstance(value, int | float | np.number) and not isinstance(value, bool)),
    str: Limit("text", lambda value: isinstance(value, str)),
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
    for name, limit in _limits(kind):
        if not limit.holds(value := getattr(owner, name)):
            raise error(f"{name} must be {limit.words}, not {value!r}")


@cache
def _limits(kind: type) -> list[tuple[str, Limit]]:
    return [(name, limit) for name, hint in _types(kind, True).items() for limit in _limits_of(hint)]


def _limits_of(hint: Any) -> list[Limit]:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return [Limit(" or ".join(repr(each) for each in choices if each != ""), lambda value: value in choices)]
    if len(get_args(hint)) == 2 and NoneType in get_args(hint):  # X | None
        return [limit.or_none() for each in get_args(hint) for limit in _limits_of(each)]
    if hint in PLAIN:
        return [PLAIN[hint]]
    return [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Limit)]


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
    has_fractions = float in (kind, *get_args(kind))
    match value:
        case Described() | Call():
            return value.spec
        case str():
            return value if _WORD.fullmatch(value) else f'"{value}"'
        case bool() | np.bool_() if not has_fractions:
            return str(value).lower()
        case int() | np.integer() if not has_fractions:
            return str(value)
        case int() | float() | np.number() | np.bool_():
            number = float(value) + 0.0  # -0.0 becomes 0.0
            return str(int(number)) if number.is_integer() and abs(number) < MAX_WHOLE else repr(number)
        case _:
            return str(value)


def read_spec(
    text: str,
    known: Mapping[str, type[D]],
    kind: str,
    base: type[D] | None = None,
    from_own_code: Callable[[str], D] | None = None,
    left_out: Mapping[str, object] | None = None,
) -> D:
    """Read a spec as an object of one of the `known` classes; `kind` names them in errors.

    `left_out` has values for fields that the spec does not set; specs inside it do not get them.

    With `base` it may also be of a class that extends it and stands elsewhere: ``python:module:name``, or the name by
    which an installed package registers it. With `from_own_code` such a name takes no arguments, and this function
    makes the object of it.
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
    if any(isinstance(node, ast.Name) and reader.own(node.id) for node in ast.walk(reader.whole)):
        return reader.call(reader.whole).spec
    return str(read_spec(text, known, kind).spec)


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


def own_code_named(
    name: str, known: Container[str], kind: str, registered: Callable[[str], Mapping[str, str]] | None = None
) -> str | None:
    """The ``python:module:name`` that a name stands for; None if it is one of the `known`, or nobody's."""
    if name.startswith(PREFIX):
        return name
    plain = normalised(name)
    return None if plain in known or not _WORD.fullmatch(plain) else (registered or installed)(kind).get(plain)


def normalised(name: str) -> str:
    """The name in lower case, with hyphens for underscores: spellings of one name become equal."""
    return name.strip().lower().replace("_", "-")


class _Reader:
    """Reads one spec. Python's own parser finds its structure: a spec is a call with keyword arguments.

    Names such as ``full-balance``, ``python:module:name`` and ``in`` are no names in Python. So the parser sees an x
    for each character of a name or a value, and these are put back at the places that it reports.
    """

    def __init__(
        self,
        text: str,
        known: Any,
        kind: str,
        base: type[Any] | None = None,
        from_own_code: Callable[[str], Any] | None = None,
    ) -> None:
        if len(text) > MAX_LENGTH:
            raise SpecError(f"{kind} spec of {len(text)} characters; give at most {MAX_LENGTH}")
        self.text, self.known, self.kind = text.strip(), known, kind
        self.base, self.from_own_code = base, from_own_code
        self.registered = cache(installed)  # looking through the packages takes its time
        self.whole = self._parse()

    def _parse(self) -> ast.expr:
        if not self.text:
            raise self._error(f"expected a {self.kind} name")
        if unreadable := _READABLE.sub("", self.text, count=1):
            raise self._error(f"cannot read {unreadable[:20]!r}")
        masked = re.sub(r"\s", " ", _ATOM.sub(lambda atom: "x" * len(atom[0]), self.text))
        if max(accumulate((each == "(") - (each == ")") for each in masked)) > MAX_NESTING:
            raise self._error("too many nested parentheses")
        try:
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
        return own_code_named(name, self.known, self.kind, self.registered)

    def call(self, node: ast.expr) -> Call:
        """The spec as it is written."""
        written, arguments = self._split(node)
        name = self.own(written) or normalised(written)
        if not name.startswith(PREFIX) and name not in self.known:
            raise self._unknown(name)
        return Call(name, {field: self._value(value, Described, self.call) for field, value in arguments.items()})

    def described(self, node: ast.expr, left_out: Mapping[str, object] | None = None) -> Any:
        """The object that a spec describes."""
        name, arguments = self._split(node)
        plain, own = normalised(name), self.own(name)
        if own is not None and self.from_own_code is not None:
            if arguments:
                raise self._error(f"{own} takes no arguments here")
            return self.from_own_code(own)
        if own is None and plain not in self.known:
            raise self._unknown(plain)
        kind: Any = self.known[plain] if own is None else self._own_class(own)
        types = _types(kind)
        given = {field: self._value(value, types.get(field), self.described) for field, value in arguments.items()}
        return self._made(kind, {**(left_out or {}), **given})

    def _value(self, node: ast.expr, kind: Any, part: Callable[[ast.expr], object]) -> object:
        """A value; the type of its field decides if a word is text, a choice, true or false, or a `part`."""
        word, _ = self._split(node)
        plain = normalised(word)
        choices = {normalised(str(choice)): choice for choice in get_args(kind)} if get_origin(kind) is Literal else {}
        if plain in choices and isinstance(node, ast.Name):
            return choices[plain]
        takes_parts = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *get_args(kind)))
        is_own = word.startswith(PREFIX) or (takes_parts and self.own(word) is not None)  # others are not looked up
        if kind is not str and (plain in self.known or is_own):
            return part(node)
        if isinstance(node, ast.Call):
            raise self._error(f"{word} takes no arguments here")
        if word[0] == '"':
            return word[1:-1]
        if not word[0].isalpha():
            return self._number(word)
        return plain == "true" if kind is not str and plain in ("true", "false") else word

    def _number(self, word: str) -> int | float:
        """A number; it is an int if it has no fraction, however it is written."""
        try:
            number = float(word)
            if re.fullmatch(r"[-+]?[\d_]+", word) and abs(number) < 2**63:
                return int(word)
        except ValueError:  # such as 1__0 and 1_
            raise self._error(f"cannot read the number {word!r}") from None
        return int(number) if number.is_integer() and abs(number) < MAX_WHOLE else number

    def _own_class(self, name: str) -> type[Any]:
        if self.base is None:
            raise self._error(f"{name} cannot stand here; give it alone")
        found: type[Any] = find_class(name, self.kind, self.base)
        if not is_dataclass(found):
            raise self._error(f"{name} has no fields; make it a frozen dataclass")
        return found

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

    def _unknown(self, name: str) -> SpecError:
        names = ", ".join([*self.known, *self.registered(self.kind)])
        return self._error(f"unknown {self.kind} {name!r}; known are {names}")

    def _error(self, message: str) -> SpecError:
        text, message = (each if len(each) <= MAX_SHOWN else f"{each[:MAX_SHOWN]}..." for each in (self.text, message))
        return SpecError(f"{self.kind} spec {text!r}: {message}")
