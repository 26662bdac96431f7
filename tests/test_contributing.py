"""Each diff of CONTRIBUTING.md adds a part that works: one file, and one line in a table."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIFFS = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
SCRIPT = """
from fedeas.cli import main
QUICK = ["rounds.total=1", "train.steps=2", "partition.clients=3", "engine.threads=1", "engine.name=local"]
for words in (
    ["plan", "--example", "--policy", "raise-rare(share=0.01)"],
    ["run", *QUICK, "policy=raise-rare(share=0.3)", "algorithm=fedavgm(momentum=0.3)", "generator=stripes"],
    ["run", *QUICK, "data.dataset=discs(train=90)", "policy=no-generation"],
):
    try:
        main(words)
    except SystemExit as stopped:
        assert not stopped.code, words
"""


def test_each_part_is_one_file_and_one_line():
    assert len(DIFFS) == 4
    for diff in DIFFS:
        tables, file = diff.split("--- /dev/null\n")
        assert tables.startswith("--- a/pyproject.toml\n")
        assert sum(line.startswith("+") for line in tables.splitlines()[2:]) == 1
        assert file.startswith("+++ b/src/fedeas/")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to apply a diff")
def test_the_parts_work(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for diff in DIFFS:
        subprocess.run(["git", "apply"], cwd=tmp_path, input=diff, text=True, check=True)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    about = tmp_path / "src" / f"fedeas-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: fedeas\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {code}\n" for name, code in parts.items())
        for group, parts in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
