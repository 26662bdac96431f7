"""What is fuzzed: every reader and command, each as a function of some bytes in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedeas import LabelCounts, read_counts
from fedeas.calls.plans import plan
from fedeas.cli import main
from fedeas.config import load_config
from fedeas.config.hyperparameters import parse_hyperparameters
from fedeas.data.partition import Partition
from fedeas.data.sources import load_dataset
from fedeas.generators.kinds import parse_generator
from fedeas.planning.policies import parse_policy
from fedeas.planning.request import Limits, choose_policy
from fedeas.planning.tables import CountTable
from fedeas.views.web import choices, plan_charts, runs

SEPARATOR = "\x1e"  # of the arguments of a command

Target = Callable[[bytes, Path], object]


def arguments_of(content: bytes) -> list[str]:
    """Arguments as a shell would hand them over: without NULs."""
    return [part.replace("\0", "") for part in content.decode("utf-8", "replace").split(SEPARATOR)]


def _written(content: bytes, folder: Path, name: str) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def _counts(ending: str) -> Target:
    def read(content: bytes, folder: Path) -> None:
        path = _written(content, folder, f"counts.{ending}")
        for _ in CountTable(path).chunks():
            pass
        read_counts(path)

    return read


def _planned(ending: str) -> Target:
    """The commands that users give a file to, after one another."""

    def plan(content: bytes, folder: Path) -> None:
        path = str(_written(content, folder, f"counts.{ending}"))
        for more in ([], ["--auto"], ["--classes", "12", "--out", str(folder / "plan.csv")], ["--compare"]):
            _command(["plan", path, *more])

    return plan


def _uploaded(ending: str) -> Target:
    """What the page does with a file."""

    def upload(content: bytes, folder: Path) -> None:
        counts = choices.read_upload(f"mine.{ending}", content).counts
        plan_charts.curves(counts)
        spec = choose_policy("fedeas", Limits(beta=12), counts).spec
        plan(counts, spec), plan_charts.rivals(counts, spec)

    return upload


def _spec(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")
    for parse in (parse_policy, parse_hyperparameters, parse_generator):
        try:
            described = parse(text)
        except Exception as error:
            last = error
            continue
        assert parse(described.spec) == described
        if parse is parse_policy:
            described.allocate(LabelCounts([[90, 10, 0], [0, 20, 80]]))  # type: ignore[union-attr]
        return
    raise last


def _override(content: bytes, folder: Path) -> None:
    load_config(None, arguments_of(content))


def _config(content: bytes, folder: Path) -> None:
    load_config(_written(content, folder, "run.toml"))


def _partition_file(content: bytes, folder: Path) -> None:
    _ = Partition.load(_written(content, folder, "split.npz")).counts


def _dataset(content: bytes, folder: Path) -> None:
    load_dataset(f"npz:{_written(content, folder, 'images.npz')}")


def _run_folder(content: bytes, folder: Path) -> None:
    run = folder / "runs" / "run"
    run.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "rounds.jsonl", "summary.json"):
        _written(content, run, name)
    runs.listed(folder / "runs")


def _arguments(*command: str) -> Target:
    def call(content: bytes, folder: Path) -> None:
        (folder / "counts.csv").write_text("client,x,y\na,90,1\nb,1,50\n")
        _command([*command, *arguments_of(content)])

    return call


def _command(arguments: list[str]) -> None:
    """Run a command; it may end with 0, or with 2 or 3 and a line of complaint."""
    try:
        main(arguments)
    except SystemExit as stopped:
        assert stopped.code in (0, 2, 3), stopped.code


TARGETS: dict[str, Target] = {
    "counts-csv": _counts("csv"),
    "counts-parquet": _counts("parquet"),
    "counts-npy": _counts("npy"),
    "plan-csv": _planned("csv"),
    "plan-parquet": _planned("parquet"),
    "upload-csv": _uploaded("csv"),
    "upload-parquet": _uploaded("parquet"),
    "spec": _spec,
    "override": _override,
    "config": _config,
    "partition-npz": _partition_file,
    "dataset-npz": _dataset,
    "run-folder": _run_folder,
    "plan": _arguments("plan", "counts.csv"),
    "partition": _arguments("partition", "cifar10"),
    "command": _arguments(),
}
