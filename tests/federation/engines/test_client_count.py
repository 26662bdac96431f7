"""Every engine tells how many clients of a round are done, each client once."""

import re
import time
from contextlib import closing

import pytest
from federation.engines.six_clients import SHAPE, SIZES, normaliser, trained, worker
from rich.progress import Progress

from fedeas.cli.progress import Rounds
from fedeas.fast.fusion import FusionEngine
from fedeas.fast.lanes import LanesEngine
from fedeas.federation.engines.processes import ProcessesEngine
from fedeas.federation.worker import LocalEngine

ENGINES = {
    "local": LocalEngine,
    "processes": lambda own: ProcessesEngine(own, 2),
    "lanes": lambda own: LanesEngine(own, normaliser(own), max(SIZES), 2),
    "fused": lambda own: FusionEngine(own, SHAPE, normaliser(own), max(SIZES), 3),
}
ONE_BY_ONE = [(done, 4) for done in range(1, 5)]


@pytest.mark.parametrize(
    ("name", "told"), [*((name, ONE_BY_ONE) for name in ENGINES if name != "fused"), ("fused", [(3, 4), (4, 4)])]
)
def test_clients_are_counted_as_they_are_done(name, told):
    found = []
    with closing(ENGINES[name](worker())) as engine:
        engine.count.tell = lambda *numbers: found.append(numbers)
        trained(engine, rounds=2)
    assert found == 2 * told


def test_the_bar_moves_within_a_round():
    bar = Progress(disable=True)
    shown = Rounds("mine", 0, 5, bar)
    places = []
    for call in (
        lambda: shown.on_client(1, 4),
        lambda: shown({"round": 1, "seconds": {"train": 1.0}}),
        lambda: shown.on_client(3, 4),
    ):
        call()
        places.append(bar.tasks[0].completed)
    assert places == [0.25, 1.0, 1.75]


@pytest.mark.parametrize(
    ("images", "told"), [({}, "634"), ({"images": {"found": 11, "made": 150}}, "150"), ({"images": {"made": 0}}, "")]
)
def test_a_line_counts_the_images_that_were_made(images, told, capsys):
    Rounds("mine", 0, 5)({"round": 1, "seconds": {"train": 1.0}, "generated": 634, **images})
    assert re.findall(r"(\d+) new images", capsys.readouterr().out) == [told] * bool(told)


def test_plain_lines_within_a_round_come_once_a_minute(capsys, monkeypatch):
    lines = Rounds("mine", 0, 5)
    lines.on_client(1, 4)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    for done in (2, 3, 4):
        lines.on_client(done, 4)
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()] == ["2 of 4 clients"]
