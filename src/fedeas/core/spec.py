"""Write objects as text and read them back: ``fedeas(beta=12)``, ``uniform(budget=fedeas(beta=12))``.

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
value  = number | true | false | word | "text" | spec

Case, spaces, the order of fields, and hyphens or underscores in names make no difference. Equal objects have one
spec, however they were spelled: equal numbers print alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fedeas.errors import FedEASError, SpecError

MAX_WHOLE = 1e15  # below it every whole number is exact as a float
MAX_LENGTH = 500  # longer than any real spec, short enough to prevent deep nesting

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z][A-Za-z0-9_-]*)|(?P<mark>[(),=])"
    r'|(?P<text>"[^"]*"))'
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Described:
    """Base of frozen dataclasses whose fields are hyperparameters and that have a name and a spec."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @classmethod
    def name(cls) -> str:
        """The name in specs: ``FullBalance`` is ``full-balance``, ``FedEAS`` is ``fedeas``."""
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


def read_spec(text: str, known: Mapping[str, type[D]], kind: str) -> D:
    """Read a spec as an object of one of the `known` classes; `kind` names them in errors."""
    if len(text) > MAX_LENGTH:
        raise SpecError(f"{kind} spec of {len(text)} characters; give at most {MAX_LENGTH}")
    reader = _Reader(text, known, kind)
    described: D = reader.described()
    reader.expect_end()
    return described


def normalised(name: str) -> str:
    """The name in lower case, with hyphens for underscores: spellings of one name become equal."""
    return name.strip().lower().replace("_", "-")


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


def _takes_numbers(kind: Any) -> bool:
    return kind is float or float in get_args(kind)


def _number(value: Any, fractions: bool) -> str:
    if isinstance(value, int | np.integer) and not fractions:
        return str(value)
    number = float(value) + 0.0  # -0.0 becomes 0.0
    return str(int(number)) if number.is_integer() and abs(number) < MAX_WHOLE else repr(number)


class _Reader:
    """Reads one spec from left to right."""

    def __init__(self, text: str, known: Mapping[str, type[Any]], kind: str) -> None:
        self.text, self.known, self.kind = text, known, kind
        self.tokens = self._tokens()
        self.position = 0

    def described(self) -> Any:
        name = normalised(self._next(f"a {self.kind} name"))
        if name not in self.known:
            raise self._error(f"unknown {self.kind} {name!r}; known are {', '.join(self.known)}")
        kind = self.known[name]
        kinds = _kinds(kind)  # type: ignore[arg-type]
        return self._build(kind, self._arguments(kinds) if self._peek() == "(" else {})

    def expect_end(self) -> None:
        if self._peek():
            raise self._error(f"unexpected {self._peek()!r}")

    def _build(self, kind: type[Any], arguments: dict[str, object]) -> Any:
        known = {field.name: field for field in fields(kind)}
        for name in arguments:
            if name not in known:
                raise self._error(f"{kind.name()} has no field {name!r}; it has {', '.join(known) or 'none'}")
        missing = [name for name, field in known.items() if field.default is MISSING and name not in arguments]
        if missing:
            raise self._error(f"{kind.name()} needs {', '.join(missing)}, as in {kind.name()}({missing[0]}=...)")
        try:
            return kind(**arguments)
        except FedEASError as error:
            raise self._error(str(error)) from None

    def _arguments(self, kinds: dict[str, Any]) -> dict[str, object]:
        arguments: dict[str, object] = {}
        self._expect("(")
        while self._peek() != ")":
            field = normalised(self._next("a field name")).replace("-", "_")
            if field in arguments:
                raise self._error(f"{field!r} is given twice")
            self._expect("=")
            arguments[field] = self._value(kinds.get(field))
            if self._peek() != ")":
                self._expect(",")
        self._expect(")")
        return arguments

    def _value(self, kind: Any) -> object:
        """The next value; the field's type decides if a word is text, a choice, true or false, or an object."""
        word = self._peek()
        if kind is not str and normalised(word) in self.known:
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
