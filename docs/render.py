"""Fill in what the docs take from the code: output of commands between markers, and the figures.

A block looks like this, and everything between its two lines is replaced by the command's output:

    <!-- $ python -m reproduction counts --markdown -->
    <!-- end -->

Between `tried` and `end` stands what `make soak` did, between `fuzzed` and `end` what `make fuzz` did, and between
`code FILE` and `end` the code of an example, between `measured NAME` and `end` a table of benchmarks/results.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from reproduction.results import Results

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "weights" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TRIED = re.compile(r"(<!-- tried -->\n).*?(<!-- end -->)", re.DOTALL)
FUZZED = re.compile(r"(<!-- fuzzed -->\n).*?(<!-- end -->)", re.DOTALL)
BLOCK = re.compile(
    r"(<!-- \$ (?P<command>(fedeas|python -m reproduction) .*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
MEASURED = re.compile(r"(<!-- measured (?P<name>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
CODE = re.compile(r"(<!-- code (?P<path>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def output_of(command: str) -> str:
    """What the command prints, as Markdown; the study's commands run where no other runs are."""
    from fedeas.cli import main as fedeas
    from reproduction.command import main as reproduction
    from reproduction.reproduction import Places

    os.environ["COLUMNS"] = "100"
    study, _, of_study = command.partition("python -m reproduction ")
    printed, main = io.StringIO(), reproduction if of_study else fedeas
    with (
        TemporaryDirectory() as empty,
        contextlib.chdir(empty if of_study else "."),
        patch.object(Places, "scan", lambda places: kept_results()),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main(shlex.split(of_study or study.removeprefix("fedeas ")))
    text = "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines())
    return f"{text}\n" if "--markdown" in command else f"\n```text\n$ {command}\n{text}\n```\n\n"


@cache
def kept_results() -> Results:
    """The finished runs that are kept, read once for all commands."""
    from reproduction.reproduction import RESULTS
    from reproduction.results import Results

    return Results([RESULTS])


def rendered(page: str) -> str:
    """The page with every block filled in anew."""
    page = CODE.sub(lambda block: block[1] + code_of(block["path"]) + block[3], page)
    page = MEASURED.sub(lambda block: block[1] + measured(block["name"]) + block[3], page)
    page = TRIED.sub(lambda block: block[1] + tried() + block[2], page)
    page = FUZZED.sub(lambda block: block[1] + fuzzed() + block[2], page)
    return BLOCK.sub(lambda block: block[1] + output_of(block["command"]) + block["end"], page)


def code_of(path: str) -> str:
    """The code of an example, without its docstring."""
    _, _, code = (ROOT / path).read_text().partition("from __future__ import annotations\n")
    return f"\n```python\n{code.strip()}\n```\n\n"


def measured(name: str) -> str:
    """What a benchmark measured, as a table."""
    found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    lines = [f"| {' | '.join(map(str, row.values()))} |" for row in found["rows"]]
    head = f"| {found['question']} | {' | '.join(list(found['rows'][0])[1:])} |"
    rule = "|---|" + "---:|" * (len(found["rows"][0]) - 1)
    where = found["machine"].get("gpu") or found["machine"]["processor"]
    return "\n".join(["", head, rule, *lines, "", f"On {where}.", "", ""])


def tried() -> str:
    """What `make soak` did at its last run, as a table."""
    found = json.loads((ROOT / "tests" / "faults" / "tried.json").read_text())
    rows = [f"| {what} | {times:,} |" for what, times in found["tried"].items()]
    kills = sum(times for what, times in found["tried"].items() if "killed at" in what)
    damages = sum(found["tried"].values()) - kills
    told = f"{kills:,} kills and {damages:,} damages; nothing was lost. On {found['machine']}, {found['date']}."
    return "\n".join(["| | times |", "|---|---:|", *rows, "", told, ""])


def fuzzed() -> str:
    """What `make fuzz` did at its last run, in one sentence."""
    path = ROOT / "tests" / "fuzz" / "tried.json"
    if not path.exists():
        return "It has not been run to its end yet.\n"
    found = json.loads(path.read_text())
    inputs, faults, targets = sum(found["tried"].values()), len(found["faults"]), len(found["tried"])
    return (
        f"{inputs:,} inputs (seed {found['seed']}) for {targets} readers and commands: {faults or 'no'} "
        f"fault{'' if faults == 1 else 's'}. On {found['machine']}, {found['date']}.\n"
    )


def main() -> None:
    """Render all pages and figures in place."""
    for path in PAGES:
        path.write_text(rendered(path.read_text()))
    with TemporaryDirectory() as folder:
        drawn = Path(folder)
        draw_plans(drawn)
        draw_results(drawn)
        for figure in sorted(drawn.glob("*.png")):
            shrink(figure, ROOT / "docs" / "images" / f"{figure.stem}.webp")


def shrink(figure: Path, image: Path) -> None:
    """Write a figure as WebP with 128 colours: it looks the same and is much smaller."""
    from PIL import Image

    with Image.open(figure) as drawn:
        small = drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.convert("RGB").save(image, lossless=True, quality=100, method=6)


def draw_plans(folder: Path) -> None:
    """The figures that need label counts alone."""
    from fedeas.cli import main as fedeas
    from reproduction.figures.counts import COUNT_FIGURES
    from reproduction.figures.style import save_all

    save_all([(name, draw()) for name, draw in COUNT_FIGURES.items()], folder)
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        fedeas(["plan", "--example", "--plot", str(folder / "plan.png")])


def draw_results(folder: Path) -> None:
    """The figures of docs/results.md and docs/beyond.md, from the finished runs that are kept."""
    from reproduction.figures.runs import RUN_FIGURES, gains_figure
    from reproduction.figures.style import save_all
    from reproduction.findings import all_findings
    from reproduction.reproduction import Reproduction
    from reproduction.studies import ANOTHER_START, study

    found = kept_results()
    book = Reproduction(study("full", "clean", ANOTHER_START), found)
    drawn = RUN_FIGURES["fig1"] | RUN_FIGURES["references"] | RUN_FIGURES["fig4"]
    save_all([("beyond-gains", gains_figure(all_findings(found)))], folder)
    save_all([(name, draw(book)) for name, draw in drawn.items()], folder)


if __name__ == "__main__":
    sys.exit(main())
