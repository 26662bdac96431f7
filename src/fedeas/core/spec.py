"""Write objects as text and read them back: ``fedeas(beta=12)``, ``uniform(budget=fedeas(beta=12))``.

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
name   = word | python:module:name
value  = number | true | false | word | "text" | spec

Case, spaces, the order of fields, and hyphens or underscores in names make no difference. Equal objects have one
spec, however they were spelled: equal numbers print alike.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fedeas.core.own_code import NAME_PATTERN, PREFIX, find_class, installed, told
from fedeas.errors import FedEASError, SpecError

PACKAGE = __name__.partition(".")[0]
MAX_WHOLE = 1e15  # below it every whole number is exact as a float
MAX_LENGTH = 500  # longer than any real spec, short enough to prevent deep nesting

_TOKEN = re.compile(
    rf"\s*(?:(?P<own>{NAME_PATTERN})|"
    r"(?P<number>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z][A-Za-z0-9_-]*)|(?P<mark>[(),=])"
    r'|(?P<text>"[^"]*"))'
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


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
        kinds = _kinds(type(self))  # type: ignore[arg-type]
        shown = [
            f"{field.name}={_literal(getattr(self, field.name), kinds.get(field.name))}"
            for position, field in enumerate(fields(self))
            if (position == 0 and field.default != "") or getattr(self, field.name) != field.default
        ]
        return f"{self.name()}({', '.join(shown)})" if shown else self.name()

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
        shown = [f"{name}={_written(value)}" for name, value in sorted(self.arguments.items())]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


def read_spec(text: str, known: Mapping[str, type[D]], kind: str, base: type[D] | None = None) -> D:
    """Read a spec as an object of one of the `known` classes; `kind` names them in errors.

    With `base` it may also be of a class that extends it and stands elsewhere: ``python:module:name``, or the name by
    which an installed package registers it.
    """
    reader = _Reader(text, known, kind, base)
    described: D = reader.described()
    reader.expect_end()
    return described


def read_call(text: str, known: Container[str], kind: str) -> Call:
    """A spec as it is written: no code is imported, and the arguments are not checked."""
    reader = _Reader(text, known, kind)
    call = reader.call()
    reader.expect_end()
    return call


def canonical_spec(text: str, known: Mapping[str, type[Any]], kind: str) -> str:
    """The one spelling of a spec. No code outside this package is imported, so own parts are not checked.

    >>> canonical_spec("python:mine:Half( share=0.50 )", {}, "policy")
    'python:mine:Half(share=0.5)'
    """
    names = _Reader(text, known, kind).names()
    if any(own_code_named(name, known, kind) for name in names):
        return read_call(text, known, kind).spec
    return str(read_spec(text, known, kind).spec)


def own_code_in(text: str) -> tuple[str, ...]:
    """All ``python:module:name`` of a spec in its one spelling.

    >>> own_code_in("uniform(budget=python:mine:Half(share=0.5))")
    ('python:mine:Half',)
    """
    return tuple(re.findall(NAME_PATTERN, re.sub(r'"[^"]*"', "", text)))


def own_code_named(name: str, known: Container[str], kind: str) -> str | None:
    """The ``python:module:name`` that a name stands for; None if it is one of the `known`, or nobody's."""
    if name.startswith(PREFIX):
        return name
    plain = normalised(name)
    return None if plain in known or not _WORD.fullmatch(plain) else installed(kind).get(plain)


def normalised(name: str) -> str:
    """The name in lower case, with hyphens for underscores: spellings of one name become equal."""
    return name.strip().lower().replace("_", "-")


def _written(value: object) -> str:
    if isinstance(value, Call):
        return value.spec
    return f'"{value}"' if isinstance(value, str) else _literal(value, None)


@cache
def _kinds(described: type[Described]) -> dict[str, Any]:
    """The types of the fields; empty if they cannot be resolved."""
    try:
        return get_type_hints(described)
    except NameError:  # a type that is local to a function
        return {}


def _literal(value: object, kind: Any) -> str:
    """A field's value as text; `kind` is the field's type, which decides whether True is a number or a word."""
    if isinstance(value, Described):
        return value.spec
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else f'"{value}"'
    if isinstance(value, bool | np.bool_) and not _takes_numbers(kind):
        return str(value).lower()
    if isinstance(value, int | float | np.number | np.bool_):
        return _number(value, _takes_numbers(kind))
    return str(value)


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _takes_numbers(kind: Any) -> bool:
    return kind is float or float in get_args(kind)


def _number(value: Any, fractions: bool) -> str:
    if isinstance(value, int | np.integer) and not fractions:
        return str(value)
    number = float(value) + 0.0  # -0.0 becomes 0.0
    return str(int(number)) if number.is_integer() and abs(number) < MAX_WHOLE else repr(number)


class _Reader:
    """Reads one spec from left to right."""

    def __init__(self, text: str, known: Any, kind: str, base: type[Any] | None = None) -> None:
        if len(text) > MAX_LENGTH:
            raise SpecError(f"{kind} spec of {len(text)} characters; give at most {MAX_LENGTH}")
        self.text, self.known, self.kind, self.base = text, known, kind, base
        self.tokens = self._tokens()
        self.position = 0

    def described(self) -> Any:
        kind: Any = self._class(self._next(f"a {self.kind} name"))
        kinds = _kinds(kind)
        return self._build(kind, self._arguments(kinds) if self._peek() == "(" else {})

    def call(self) -> Call:
        name = self._next(f"a {self.kind} name")
        name = own_code_named(name, self.known, self.kind) or normalised(name)
        if not name.startswith(PREFIX) and name not in self.known:
            raise self._unknown(name)
        return Call(name, self._arguments(None) if self._peek() == "(" else {})

    def names(self) -> list[str]:
        """Words that can be the name of a part: all but the names of fields."""
        followed = zip(self.tokens, [*self.tokens[1:], ""], strict=True)
        return [token for token, after in followed if token[0].isalpha() and after != "="]

    def expect_end(self) -> None:
        if self._peek():
            raise self._error(f"unexpected {self._peek()!r}")

    def _class(self, name: str) -> type[Any]:
        plain = normalised(name)
        if plain in self.known:
            known: type[Any] = self.known[plain]
            return known
        own = own_code_named(name, self.known, self.kind)
        if own is None:
            raise self._unknown(plain)
        if self.base is None:
            raise self._error(f"{own} cannot stand here; give it alone")
        found = find_class(own, self.kind, self.base)
        if not is_dataclass(found):
            raise self._error(f"{own} has no fields; make it a frozen dataclass")
        return found

    def _unknown(self, name: str) -> SpecError:
        names = ", ".join([*self.known, *installed(self.kind)])
        return self._error(f"unknown {self.kind} {name!r}; known are {names}")

    def _build(self, kind: type[Any], arguments: dict[str, object]) -> Any:
        known = {field.name: field for field in fields(kind)}
        for name in arguments:
            if name not in known:
                raise self._error(f"{kind.name()} has no field {name!r}; it has {', '.join(known) or 'none'}")
        missing = [name for name, field in known.items() if _is_needed(field) and name not in arguments]
        if missing:
            raise self._error(f"{kind.name()} needs {', '.join(missing)}, as in {kind.name()}({missing[0]}=...)")
        try:
            return kind(**arguments)
        except FedEASError as error:
            raise self._error(str(error)) from None
        except Exception as error:
            if kind.__module__.partition(".")[0] == PACKAGE:
                raise
            raise self._error(told(error)) from error

    def _arguments(self, kinds: dict[str, Any] | None) -> dict[str, object]:
        """What stands in parentheses; `kinds` are the types of the fields, None to take it as it is written."""
        arguments: dict[str, object] = {}
        self._expect("(")
        while self._peek() != ")":
            field = normalised(self._next("a field name")).replace("-", "_")
            if field in arguments:
                raise self._error(f"{field!r} is given twice")
            self._expect("=")
            arguments[field] = self._plain_value() if kinds is None else self._value(kinds.get(field))
            if self._peek() != ")":
                self._expect(",")
        self._expect(")")
        return arguments

    def _value(self, kind: Any) -> object:
        """The next value; the field's type decides if a word is text, a choice, true or false, or an object."""
        word = self._peek()
        if kind is not str and (normalised(word) in self.known or self._is_own(word, kind)):
            return self.described()
        self._next("a value")
        if word[0] == '"':
            return word[1:-1]
        if not word[0].isalpha():
            return self._read_number(word)
        if kind is not str and word.lower() in ("true", "false"):
            return word.lower() == "true"
        choices = {normalised(str(choice)): choice for choice in get_args(kind)} if get_origin(kind) is Literal else {}
        return choices.get(normalised(word), word)

    def _is_own(self, word: str, kind: Any) -> bool:
        """Whether a value is a user's own part; plain names are looked up only where the field takes parts."""
        takes_parts = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *get_args(kind)))
        return word.startswith(PREFIX) or (takes_parts and own_code_named(word, self.known, self.kind) is not None)

    def _plain_value(self) -> object:
        """The next value, of a field whose type is not known."""
        word = self._peek()
        if word[:1].isalpha() and (normalised(word) in self.known or own_code_named(word, self.known, self.kind)):
            return self.call()
        return self._value(None)

    def _read_number(self, word: str) -> int | float:
        """A number; it is an int if it has no fraction, however it is written."""
        try:
            number = float(word)
            if re.fullmatch(r"[-+]?[\d_]+", word) and abs(number) < 2**63:
                return int(word)
        except ValueError:  # such as 1__0 and 1_
            raise self._error(f"cannot read the number {word!r}") from None
        return int(number) if number.is_integer() and abs(number) < MAX_WHOLE else number

    def _tokens(self) -> list[str]:
        tokens, position = [], 0
        while self.text[position:].strip():
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error(f"cannot read {self.text[position:].strip()[:20]!r}")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _next(self, wanted: str) -> str:
        token = self._peek()
        if not token or token in "(),=":
            raise self._error(f"expected {wanted}" + (f", not {token!r}" if token else " at the end"))
        self.position += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            found = f", not {self._peek()!r}" if self._peek() else " at the end"
            raise self._error(f"expected {mark!r}{found}")
        self.position += 1

    def _error(self, message: str) -> SpecError:
        return SpecError(f"{self.kind} spec {self.text!r}: {message}")
