"""A node's own record of what it told servers about its label counts.

The total of a plan is a number about the counts behind it, and totals under many chosen policies give the counts away.
A node therefore answers once for each run, and notes each answer in a file of its owner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedeas.core.journal import Journal
from fedeas.core.log import log
from fedeas.flower.node_settings import TellableError

REMEDY = "move it away to begin a new one"


class Disclosures:
    """The file of one client in its node's state folder; one line for each answer about a plan."""

    def __init__(self, folder: Path, client: int) -> None:
        self.path = folder / f"disclosures-{client}.jsonl"
        self._answers = Journal(self.path, REMEDY)  # an answer is given after it has been noted

    def check(self, run: str, kind: str, asked: Mapping[str, Any]) -> None:
        """Refuse to answer if the node has answered for this run before, and the question is another one now."""
        if any(
            line["asked"] != _text(asked) for line in self._answers.read() if (line["run"], line["kind"]) == (run, kind)
        ):
            raise TellableError(
                "its node has answered another question for this run before; its owner can remove that line of "
                f"{self.path.name}, or start a run of another name"
            )

    def note(self, run: str, kind: str, asked: Mapping[str, Any], policy: str, told: Mapping[str, int]) -> None:
        """Note an answer, unless the same one stands there."""
        known = self._answers.read()
        answer = {"run": run, "kind": kind, "asked": _text(asked), "policy": policy, "told": dict(told)}
        if any(answer.items() <= line.items() for line in known):
            return
        self._answers.add({"time": datetime.now(UTC).isoformat(timespec="seconds"), **answer})
        policies = {line["policy"] for line in known} | {policy}
        words = "told the server %s under %s; answers so far: %d, under %d policies; see %s"
        log.info(words, answer["told"], policy, len(known) + 1, len(policies), self.path)


def _text(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, sort_keys=True)
