"""Write objects as text and read them back: ``fedeas(beta=12)``, ``uniform(budget=fedeas(beta=12))``.

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
name   = word | python:module:name
value  = number | true | false | word | "text" | spec

Case, spaces, the order of fields, and hyphens or underscores in names make no difference. Equal objects have one
spec, however they were spelled: equal numbers print alike.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from fedeas.core.errors import FedEASError, InputError, SpecError
from fedeas.core.limits import check_fields
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
    if _Reader(text, known, kind).names_own_code():
        return read_call(text, known, kind).spec
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


def own_code_named(name: str, known: Container[str], kind: str) -> str | None:
    """The ``python:module:name`` that a name stands for; None if it is one of the `known`, or nobody's."""
    return _own_code(name, known, lambda: installed(kind))


def _own_code(name: str, known: Container[str], registered: Callable[[], Mapping[str, str]]) -> str | None:
    if name.startswith(PREFIX):
        return name
    plain = normalised(name)
    return None if plain in known or not _WORD.fullmatch(plain) else registered().get(plain)


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


def _takes_numbers(kind: Any) -> bool:
    return kind is float or float in get_args(kind)


def _number(value: Any, fractions: bool) -> str:
    if isinstance(value, int | np.integer) and not fractions:
        return str(value)
    number = float(value) + 0.0  # -0.0 becomes 0.0
    return str(int(number)) if number.is_integer() and abs(number) < MAX_WHOLE else repr(number)


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
        self.registered = cache(lambda: installed(kind))  # looking through the packages takes its time
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

    def names_own_code(self) -> bool:
        """Whether a word other than the name of a field stands for a user's own code."""
        return any(isinstance(node, ast.Name) and self._own(node.id) for node in ast.walk(self.whole))

    def _own(self, name: str) -> str | None:
        return _own_code(name, self.known, self.registered)

    def described(self, node: ast.expr, left_out: Mapping[str, object] | None = None) -> Any:
        name, arguments = self._split(node)
        own = self._own(name)
        if own is not None and self.from_own_code is not None:
            if arguments:
                raise self._error(f"{own} takes no arguments here")
            return self.from_own_code(own)
        kind: Any = self._class(name)
        kinds = _kinds(kind)
        given = {field: self._value(value, kinds.get(field)) for field, value in arguments.items()}
        return self._build(kind, {**(left_out or {}), **given})

    def call(self, node: ast.expr) -> Call:
        written, arguments = self._split(node)
        name = self._own(written) or normalised(written)
        if not name.startswith(PREFIX) and name not in self.known:
            raise self._unknown(name)
        return Call(name, {field: self._plain_value(value) for field, value in arguments.items()})

    def _value(self, node: ast.expr, kind: Any) -> object:
        """A value; the field's type decides if a word is text, a choice, true or false, or an object."""
        word, _ = self._split(node)
        choices = {normalised(str(choice)): choice for choice in get_args(kind)} if get_origin(kind) is Literal else {}
        if normalised(word) in choices and isinstance(node, ast.Name):
            return choices[normalised(word)]
        if kind is not str and (normalised(word) in self.known or self._is_own(word, kind)):
            return self.described(node)
        if isinstance(node, ast.Call):
            raise self._error(f"{word} takes no arguments here")
        if word[0] == '"':
            return word[1:-1]
        if not word[0].isalpha():
            return self._read_number(word)
        if kind is not str and word.lower() in ("true", "false"):
            return word.lower() == "true"
        return word

    def _plain_value(self, node: ast.expr) -> object:
        """A value of a field whose type is not known."""
        word, _ = self._split(node)
        is_part = normalised(word) in self.known or self._own(word)
        return self.call(node) if is_part else self._value(node, None)

    def _is_own(self, word: str, kind: Any) -> bool:
        """Whether a value is a user's own part; plain names are looked up only where the field takes parts."""
        takes_parts = any(isinstance(each, type) and issubclass(each, Described) for each in (kind, *get_args(kind)))
        return word.startswith(PREFIX) or (takes_parts and self._own(word) is not None)

    def _read_number(self, word: str) -> int | float:
        """A number; it is an int if it has no fraction, however it is written."""
        try:
            number = float(word)
            if re.fullmatch(r"[-+]?[\d_]+", word) and abs(number) < 2**63:
                return int(word)
        except ValueError:  # such as 1__0 and 1_
            raise self._error(f"cannot read the number {word!r}") from None
        return int(number) if number.is_integer() and abs(number) < MAX_WHOLE else number

    def _class(self, name: str) -> type[Any]:
        plain = normalised(name)
        if plain in self.known:
            known: type[Any] = self.known[plain]
            return known
        own = self._own(name)
        if own is None:
            raise self._unknown(plain)
        if self.base is None:
            raise self._error(f"{own} cannot stand here; give it alone")
        found = find_class(own, self.kind, self.base)
        if not is_dataclass(found):
            raise self._error(f"{own} has no fields; make it a frozen dataclass")
        return found

    def _unknown(self, name: str) -> SpecError:
        names = ", ".join([*self.known, *self.registered()])
        return self._error(f"unknown {self.kind} {name!r}; known are {names}")

    def _build(self, kind: type[Any], arguments: dict[str, object]) -> Any:
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
        return SpecError(f"{self.kind} spec {_shortened(self.text)!r}: {_shortened(message)}")


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
