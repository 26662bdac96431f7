"""``python -m reproduction.pack``: add finished runs to a Parquet file.

    python -m reproduction.pack reproduction/results/cifar10.parquet reproduction/results/c10-*.parquet runs

adds the runs of the other Parquet files and of the folders of run directories to the first file. A run that is in the
file already stays as it is; afterwards the others may be removed.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedeas import FedEASError, InputError
from fedeas.runs import Run, pack_runs, read_runs


def finished_runs(*places: Path) -> list[Run]:
    """The finished runs in Parquet files and in folders, all of which must exist."""
    if missing := [place for place in places if not place.exists()]:
        raise InputError(f"{missing[0]}: no such file or folder")
    return list(read_runs(*places))


def add(runs: Iterable[Run], packed: Path, with_rounds: bool = True) -> str:
    """Add runs to a Parquet file, which need not exist; a run that is there stays as it is. Says what was done."""
    if packed.suffix != ".parquet":
        raise InputError(f"{packed}: use a name that ends in .parquet")
    before = {run.fingerprint: run for run in (read_runs(packed) if packed.exists() else ())}
    after = {run.fingerprint: run for run in runs} | before
    packed.parent.mkdir(parents=True, exist_ok=True)
    pack_runs(after.values(), packed, with_rounds)
    return f"{packed}: {len(after) - len(before)} runs added, {len(after)} in all"


def main(words: Sequence[str]) -> None:
    """Add the runs of all other places to the first file."""
    packed, *places = map(Path, words or ("",))
    try:
        print(add(finished_runs(*places), packed))
    except FedEASError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
