"""Pack finished runs into one small file with their rounds, and make run directories of such a file again.

    python benchmarks/pack_runs.py results/cifar10.runs.xz results/c10-* more.runs.xz
    python benchmarks/pack_runs.py results/cifar10.runs.xz --unpack cifar10

The first line adds runs: run directories, folders of them, or packed files. A run that is in the file already stays as
it is; the directories may be removed afterwards. The second line writes all runs of the file into a folder, for
`fedeas runs`, `fedeas report` and `fedeas planner`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import make_folder
from fedeas.runs.packed import ENDING, pack, unpack, write_folder
from fedeas.runs.store import MARKS, Run, RunStore, read_run


def packed_runs(packed: Path) -> list[Run]:
    """The runs of a packed file, which need not exist."""
    return unpack(packed) if packed.exists() else []


def finished_runs(place: Path) -> list[Run]:
    """The finished runs of a packed file, of a folder of run directories, or the one in a run directory."""
    if place.name.endswith(ENDING):
        return unpack(place)
    if not place.is_dir():
        raise InputError(f"{place}: no such folder; give folders of runs, or files that end in {ENDING}")
    is_run = any((place / name).exists() for name in MARKS)
    return [run for run in ([read_run(place)] if is_run else RunStore(place).all()) if run.finished]


def add(runs: Iterable[Run], packed: Path, with_rounds: bool = True) -> str:
    """Add runs to a packed file; a run that is there already stays as it is. Says what was done."""
    before = {run.config.fingerprint: run for run in packed_runs(packed)}
    after = {run.config.fingerprint: run for run in runs} | before
    make_folder(packed.parent)
    pack(after.values(), packed, with_rounds)
    return f"{packed}: {len(after) - len(before)} runs added, {len(after)} in all"


def main() -> None:
    """Add runs to a packed file, and write its runs into a folder."""
    asked = parser()
    given = asked.parse_args()
    if not given.packed.name.endswith(ENDING):
        asked.error(f"{given.packed}: use a name that ends in {ENDING}; results are found by it")
    if not given.places and given.unpack is None:
        asked.error("give runs to add, or --unpack FOLDER")
    if given.places:
        print(add([run for place in given.places for run in finished_runs(place)], given.packed))
    for run in unpack(given.packed) if given.unpack is not None else ():
        write_folder(run, given.unpack)


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("packed", type=Path, metavar=f"NAME{ENDING}")
    asked.add_argument("places", type=Path, nargs="*", metavar="PLACE", help="run directories, or packed files, to add")
    asked.add_argument("--unpack", type=Path, metavar="FOLDER", help="where to write the runs of the file")
    return asked


if __name__ == "__main__":
    main()
