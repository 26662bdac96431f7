"""When processes started: a pid alone does not identify a process, because pids are reused."""

from __future__ import annotations

import subprocess
from pathlib import Path


def birth(pid: int) -> str | None:
    """When the process of this pid started, as text; None if there is none, or if it has ended.

    >>> import os
    >>> birth(os.getpid()) == birth(os.getpid()) is not None
    True
    """
    if not Path("/proc/self/stat").exists():  # not Linux
        command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
        state, _, began = subprocess.run(command, capture_output=True, text=True).stdout.strip().partition(" ")
        return None if state.startswith("Z") else began.strip() or None
    try:
        # The name, in brackets before these fields, may itself contain spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
