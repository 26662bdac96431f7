"""Change the code in one place at a time, and see whether its tests notice.

    python tests/mutants.py --seed 0                 50 mutants of planning, federation and algorithms
    python tests/mutants.py --seed 0 --root TREE     the same of another tree, with the tests of that tree

A mutant has another comparison, another constant, another operator, or a statement less. Each is tried in a copy of the
tree, with the tests of its room. A test that takes much too long counts as a failure, since something hangs.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ROOMS = ("planning", "federation", "algorithms")
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult,
}  # fmt: skip
DROPPED = (ast.Assign, ast.AugAssign, ast.Raise, ast.Expr)
MINUTES = 10


class Mutant(NamedTuple):
    """A file of the tree, and its text after one change."""

    room: str
    file: Path
    change: str
    text: str


def mutants(root: Path, room: str) -> Iterator[Mutant]:
    """All mutants of a room's code, in the order of files and lines."""
    for path in sorted((root / "src" / "fedeas" / room).rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        # Before Python 3.12, the parts of an f-string have no places of their own.
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        for node in ast.walk(tree):
            for new in _changed(node) if id(node) not in parts else ():
                start = _place(text, node.lineno, node.col_offset)
                end = _place(text, node.end_lineno, node.end_col_offset)
                old, made = text[start:end], ast.unparse(new)
                change = f"{path.relative_to(root)}:{node.lineno}: {' '.join(old.split())[:60]} -> {made[:60]}"
                yield Mutant(room, path.relative_to(root), change, text[:start] + made + text[end:])


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What can stand in the place of a node of the syntax tree."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, DROPPED) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        yield ast.Pass()


def _place(text: str, line: int, column: int) -> int:
    """The index in the text of a line, from 1, and a column in bytes of UTF-8."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def is_killed(copy: Path, mutant: Mutant) -> bool:
    """Whether a test of the room fails while the mutant is in the copy of the tree."""
    file = copy / mutant.file
    before = file.read_text("utf-8")
    file.write_text(mutant.text, "utf-8")
    try:
        return fails(copy, mutant.room)
    finally:
        file.write_text(before, "utf-8")


def fails(copy: Path, room: str) -> bool:
    """Whether a test of this room fails."""
    path = os.pathsep.join(map(str, (copy / "src", copy / "tests", copy)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    selected = ["-m", "not slow and not soak", f"tests/{room}", f"src/fedeas/{room}"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *selected]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Draw mutants, try each, and say which the tests kill."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--number", type=int, default=50)
    asked.add_argument("--root", type=Path, default=ROOT)
    asked.add_argument("--rooms", nargs="+", default=list(ROOMS))
    given = asked.parse_args()
    drawn, root = random.Random(given.seed), given.root.resolve()
    by_room = {room: list(mutants(root, room)) for room in given.rooms}
    chosen = [drawn.choice(by_room[given.rooms[number % len(given.rooms)]]) for number in range(given.number)]
    killed = 0
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache"))
        if broken := [room for room in given.rooms if fails(copy, room)]:
            sys.exit(f"the tests of {', '.join(broken)} fail without a mutant, or take more than {MINUTES} minutes")
        for mutant in chosen:
            dead = is_killed(copy, mutant)
            killed += dead
            print("killed  " if dead else "SURVIVED", mutant.change, flush=True)
    print(f"{killed} of {len(chosen)} mutants killed (seed {given.seed})")


if __name__ == "__main__":
    main()
