"""The command line: plan, make images, train, compare, distribute."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from typer.main import get_command

from fedeas.cli.bank import bank
from fedeas.cli.demo import demo
from fedeas.cli.flower import flower
from fedeas.cli.generate import generate
from fedeas.cli.generator import generator
from fedeas.cli.plan import partition, plan
from fedeas.cli.planner import planner
from fedeas.cli.runs import pretrain, report, run, runs
from fedeas.cli.weights import weights
from fedeas.core import VERSION
from fedeas.core.errors import FedEASError, RunError, extra_for
from fedeas.core.files import known_error
from fedeas.core.foreign_text import printable

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="How much synthetic data each federated client needs, and where it should go.",
)
PANELS: dict[str, Sequence[Callable[..., None] | typer.Typer]] = {
    "Plan": (plan, partition, planner),
    "Make images": (generate, generator, weights, bank),
    "Train": (run, pretrain),
    "Compare": (runs, report, demo),
    "Distribute": (flower,),
}
"""The commands, in the groups that the help shows."""

for panel, members in PANELS.items():
    for member in members:
        if isinstance(member, typer.Typer):
            app.add_typer(member, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(member)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error that FedEAS raises on purpose is printed as one line, with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names need not be text
    try:
        with extra_for("this command"):
            _command()(args=arguments)
    except FedEASError as error:
        _stop(str(error), error.exit_code)
    except OSError as error:
        known = known_error(error)
        if known is None:
            raise
        _stop(str(known), known.exit_code)
    except UnicodeEncodeError as error:
        _stop(f"{error.object[:200]}: its name is not UTF-8; rename it", FedEASError.exit_code)
    except (MemoryError, RuntimeError) as error:
        # Python, numpy or torch could not allocate memory, on a GPU or not; torch is not imported to find out.
        by_torch = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
        if not (by_torch or isinstance(error, MemoryError)):
            raise
        what = ": ".join(filter(None, ("too little memory", str(error).partition(". GPU")[0])))
        _stop(
            f"{what}; end other programs that use it, or use smaller batches; what is done is kept", RunError.exit_code
        )


@cache  # Typer builds every option of every command, which takes longer than a short command runs
def _command() -> Callable[..., None]:
    return get_command(app)


def _stop(message: str, code: int) -> NoReturn:
    line = f"error: {printable(message)}"
    Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(line, markup=False, style="red")
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fedeas {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass
