"""Policies as text: ``fedeas(beta=12)``, ``uniform(budget=fedeas(beta=12))``, and back by `Policy.spec`.

spec   = name [ "(" [ field "=" value { "," field "=" value } ] ")" ]
value  = number | true | false | word | spec
"""

from __future__ import annotations

import re
from dataclasses import fields

from fedeas.errors import PolicyError, SpecError
from fedeas.policies import (
    BySize,
    CostAware,
    FedEAS,
    FullBalance,
    Greedy,
    MissingOnly,
    NoGeneration,
    Optimal,
    Policy,
    Uniform,
)

POLICIES: dict[str, type[Policy]] = {
    policy.name(): policy
    for policy in (
        FedEAS,
        Uniform,
        MissingOnly,
        BySize,
        Greedy,
        Optimal,
        CostAware,
        FullBalance,
        NoGeneration,
    )
}

MAX_LENGTH = 500  # far beyond any real spec, and short enough to rule out runaway nesting

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z][A-Za-z0-9_-]*)|(?P<mark>[(),=]))"
)

Value = int | float | bool | str | Policy


def parse_policy(text: str) -> Policy:
    """The policy that a spec describes.

    >>> parse_policy("uniform(budget=fedeas(beta=8))")
    Uniform(budget=FedEAS(beta=8, gamma=0.5, entropy=True, fill='below-mean'))
    >>> parse_policy("missing-only(budget=100)").spec
    'missing-only(budget=100)'
    """
    if len(text) > MAX_LENGTH:
        raise SpecError(f"policy spec of {len(text)} characters; give at most {MAX_LENGTH}")
    reader = _Reader(text)
    policy = reader.policy()
    reader.expect_end()
    return policy


class _Reader:
    """Reads one spec from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.position = 0

    def policy(self) -> Policy:
        name = self._next("a policy name").lower().replace("_", "-")
        if name not in POLICIES:
            raise self._error(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
        return self._build(POLICIES[name], self._arguments() if self._peek() == "(" else {})

    def expect_end(self) -> None:
        if self._peek():
            raise self._error(f"unexpected {self._peek()!r}")

    def _build(self, policy: type[Policy], arguments: dict[str, Value]) -> Policy:
        known = [field.name for field in fields(policy)]
        for name in arguments:
            if name not in known:
                raise self._error(f"{policy.name()} has no field {name!r}; it has {', '.join(known) or 'none'}")
        try:
            return policy(**arguments)
        except TypeError:
            missing = ", ".join(name for name in known if name not in arguments)
            raise self._error(f"{policy.name()} needs {missing}, as in {policy.name()}({known[0]}=...)") from None
        except PolicyError as error:
            raise self._error(str(error)) from None

    def _arguments(self) -> dict[str, Value]:
        arguments: dict[str, Value] = {}
        self._expect("(")
        while self._peek() != ")":
            field = self._next("a field name")
            if field in arguments:
                raise self._error(f"{field!r} is given twice")
            self._expect("=")
            arguments[field] = self._value()
            if self._peek() != ")":
                self._expect(",")
        self._expect(")")
        return arguments

    def _value(self) -> Value:
        word = self._peek()
        if word.lower().replace("_", "-") in POLICIES:
            return self.policy()
        self._next("a value")
        if word in ("true", "false"):
            return word == "true"
        if word[0].isalpha():
            return word
        try:
            return int(word)
        except ValueError:
            return float(word)

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
        return SpecError(f"policy spec {self.text!r}: {message}")
