"""List all messages with which FedEAS refuses something: place in the code, error and message as a template.

    python tests/refusals.py            all of them
    python tests/refusals.py --odd      those that break a rule of style, with the rule
    python tests/refusals.py --bare     those that name no remedy

A message states place, fact and remedy: ``counts.csv: row 2, class 'cat': fractional count 2.5; give whole numbers``.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "fedeas"
REMEDIES = re.compile(
    r"[;:] |, or |, not |must|needs?\b|at (most|least)|only|"
    r"\b(use|give|set|choose|remove|leave|rename|make|install|add|put|run|known are|such as|instead)\b"
)


class Refusal(NamedTuple):
    """An error with a message, and its place in the code; `{...}` stands for what is filled in."""

    place: str
    error: str
    message: str

    @property
    def rule(self) -> str:
        """The rule of style that the message breaks; empty if none."""
        text = self.message
        if re.match(r"[A-Z][a-z]", text):
            return "begins with a capital letter"
        if text.endswith(".") and not text.endswith("..."):
            return "ends with a full stop"
        if "\n" in text:
            return "has several lines"
        return "is empty" if not text.strip() else ""

    @property
    def is_bare(self) -> bool:
        """Whether no remedy is named in the words of the message itself."""
        return not REMEDIES.search(self.message)


def refusals() -> list[Refusal]:
    """The messages of all errors that are made in the code, by file and line."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    errors, known = {"FedEASError"}, 0
    while len(errors) > known:  # classes that extend one of them
        known = len(errors)
        classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        errors |= {each.name for each in classes if {ast.unparse(base) for base in each.bases} & errors}
    return [found for path, tree in trees.items() for found in _in_module(path, tree, errors)]


def _in_module(path: Path, tree: ast.Module, errors: set[str]) -> Iterator[Refusal]:
    module = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    for call in sorted(calls, key=lambda node: node.lineno):
        if isinstance(call.func, ast.Name) and call.func.id in errors:
            yield Refusal(f"{module}:{call.lineno}", call.func.id, _template(call.args[0]))


def _template(text: ast.expr) -> str:
    """The message with names in braces."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_template(part) for part in text.values)
    if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
        return _template(text.left) + _template(text.right)
    return f"{{{ast.unparse(text.value if isinstance(text, ast.FormattedValue) else text)}}}"


def main(words: list[str]) -> None:
    """Print the messages that are asked for, and how many there are."""
    found = refusals()
    shown = [each for each in found if ("--odd" not in words or each.rule) and ("--bare" not in words or each.is_bare)]
    for each in shown:
        print(f"{each.place}  {each.error}: {each.message}" + f"  [{each.rule}]" * bool(each.rule))
    print(f"{len(shown)} of {len(found)} messages, {len({each.message for each in found})} different ones")


if __name__ == "__main__":
    main(sys.argv[1:])
