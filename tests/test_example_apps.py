"""The Flower app of examples/flower_pytorch: three lines more, more samples, and the same weights."""

import difflib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from waiting import LIMIT

from fedeas import FedEAS, LabelCounts
from fedeas.data.sources import load_dataset

APPS = Path(__file__).parent.parent / "examples" / "flower_pytorch"
NAMES = ("before", "after")
LINE = re.compile(r"^round (\d): accuracy ([\d.]+), weight (\d+), samples (\d+)$", re.MULTILINE)

needs_flower = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("flwr", "ray"))), reason="Flower is not installed: pip install '.[flower]'"
)


def added_lines():
    before, after = ((APPS / f"{name}.py").read_text().splitlines() for name in NAMES)
    changed = [line for line in difflib.ndiff(before, after) if line[0] != " "]
    assert all(line.startswith("+ ") for line in changed), changed
    return [line[2:] for line in changed]


def test_three_lines_are_added_and_none_is_changed():
    imported, augmented, weighted = added_lines()
    assert imported == "from fedeas import augment"
    assert "augment(data, labels, " in augmented
    assert weighted.endswith("= data.num_real")


def test_the_readme_shows_these_lines():
    shown = [line[1:] for line in (APPS / "README.md").read_text().splitlines() if line.startswith("+")]
    assert shown == added_lines()


@pytest.fixture
def environment(tmp_path):
    """An environment without telemetry and with its own home folder."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    sources = os.pathsep.join(filter(None, [str(APPS.parents[1] / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **quiet, "FLWR_HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": sources}


@pytest.mark.slow
@needs_flower
def test_both_apps_run_and_only_the_samples_differ(tmp_path, environment):
    options = {"cwd": tmp_path, "env": environment, "text": True, "start_new_session": True}
    started = [  # at once, because Flower waits more than it works
        subprocess.Popen([sys.executable, APPS / f"{name}.py"], stdout=-1, stderr=subprocess.STDOUT, **options)
        for name in NAMES
    ]
    try:
        counts, real = client_counts(tmp_path, environment)
        before, after = (rounds_of(process) for process in started)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the app and the actors it started
    generated = FedEAS(12).allocate(counts).total
    assert generated > 0
    assert [(weight, samples) for _, _, weight, samples in before] == [(real, real)] * 3
    assert [(weight, samples) for _, _, weight, samples in after] == [(real, real + generated)] * 3
    assert after[-1][1] > before[-1][1]  # not by chance: both apps are seeded, and the gap is wide


def rounds_of(process):
    """Round, accuracy, weight and samples of each line that the app prints."""
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output
    found = [(int(number), float(accuracy), int(w), int(n)) for number, accuracy, w, n in LINE.findall(output)]
    assert [number for number, *_ in found] == [1, 2, 3], output
    return found


def client_counts(folder, environment):
    """Label counts of the app's clients; check that its test part is the one that the generator has not seen."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import before, torch;"
        "parts = before.load_split();"
        "clients = [before.load_client(client)[1] for client in range(before.CLIENTS)];"
        "torch.save((parts, [labels.bincount(minlength=10) for labels in clients]), 'split.pt')"
    )
    subprocess.run([sys.executable, "-c", script, APPS], cwd=folder, env=environment, check=True)
    parts, counts = torch.load(folder / "split.pt")
    digits = load_dataset("digits")
    wanted = (digits.images, digits.labels), (digits.test_images, digits.test_labels)
    for (images, labels), (pixels, classes) in zip(parts, wanted, strict=True):
        assert np.array_equal((images * 255).round().numpy(), pixels)
        assert np.array_equal(labels, classes)
    return LabelCounts(torch.stack(counts).numpy()), len(digits.labels)
