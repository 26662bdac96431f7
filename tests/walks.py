"""Trace two walks through the code: which files of FedEAS a command passes through, and how many functions it calls.

python tests/walks.py                 of this tree
python tests/walks.py --root TREE     of another one
python tests/walks.py --files         also name the files
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

WALKS = {
    "a plan from CSV to CSV": ["plan", "counts.csv", "--out", "plan.csv"],
    "a run of digits, one round": ["run", "rounds.total=1", "train.epochs=1", "engine.threads=1", "engine.name=local"],
}


def walk(words: list[str], source: str) -> Counter[str]:
    """Run a command in this process: the calls of functions by file below `source`."""
    from fedeas.cli import main

    calls = Counter[str]()

    def note(frame, event, given):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(source):
            calls[code.co_filename.removeprefix(source)] += 1

    sys.setprofile(note)
    try:
        main(words)
    except SystemExit as stopped:
        assert not stopped.code, stopped.code
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    """Trace each walk in a process and a folder of its own."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    asked.add_argument("--files", action="store_true")
    given = asked.parse_args()
    source = f"{given.root.resolve() / 'src' / 'fedeas'}{os.sep}"
    environment = {**os.environ, "PYTHONPATH": str(given.root.resolve() / "src")}
    for name, words in WALKS.items():
        with TemporaryDirectory() as folder:
            (Path(folder) / "counts.csv").write_text("client,cat,dog\na,90,10\nb,5,200\n")
            command = [sys.executable, __file__, "--walk", source, *words]
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        calls = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {len(calls)} files, {sum(calls.values()):,} calls")
        for file, number in sorted(calls.items()) if given.files else ():
            print(f"  {number:8,} {file}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        print("\n" + json.dumps(walk(sys.argv[3:], sys.argv[2])))
    else:
        main()
