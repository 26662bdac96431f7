"""What long tests tried, kept as JSON with machine and date; docs/reliability.md is rendered from it."""

import datetime
import json
import os
import platform
from pathlib import Path


def keep_tried(path, tried, **more):
    """Write how often each thing was tried, in alphabetical order, and what else is to be known of it."""
    content = {**here_today(), **more, "tried": dict(sorted(tried.items()))}
    Path(path).write_text(json.dumps(content, indent=1) + "\n")


def tried_today(path):
    """What the file says of this machine and today; {} if it is older. Long tests may so be run in parts."""
    kept = json.loads(Path(path).read_text()) if Path(path).exists() else {}
    return kept["tried"] if here_today().items() <= kept.items() else {}


def here_today():
    """This machine and the date."""
    return {"machine": machine(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


def machine():
    """The system, its processor's kind, its cores, and Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}"
