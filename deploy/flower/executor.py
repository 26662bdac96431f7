"""The executor that forks, as a process: ``python -m deploy.flower.executor``.

It imports the app once and handles each message in a fork (`internals/executor.py`). When it is ready, it writes READY
to a file descriptor; if it cannot be used with the installed Flower, it writes the reason there and ends.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.flower import internals
from deploy.flower.app import Bundle
from fedeas.flower.printed_log import print_log

READY = b"1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Import the app, report that, and handle tasks until the parent ends."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node; this process ends with it
    problem = internals.problem("executor")
    if problem is None:
        _serve(options)
    else:
        _report(options.ready_fd, problem.encode())


def _serve(options: argparse.Namespace) -> None:
    from deploy.flower.internals.executor import Executor

    began = time.monotonic()
    for name in options.preload:
        importlib.import_module(name)
    app = Bundle.of(options.app)
    app.load_client()  # imported here once, not again in each child
    print_log()
    gc.freeze()  # keeps the pages of imported modules shared with the children
    print(f"executor ready: {app.name} imported in {time.monotonic() - began:.1f} s", flush=True)
    _report(options.ready_fd, READY)
    Executor(options.runtime, app, options.secret.read_bytes(), options.limit, options.parent_pid).serve()


def _report(descriptor: int, text: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as ready:
        ready.write(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m deploy.flower.executor", description=__doc__.partition("\n")[0])
    parser.add_argument("--runtime", required=True, help="Runtime API of the node, as host:port.")
    parser.add_argument("--secret", required=True, type=Path, help="File with the secret that node and executor share.")
    parser.add_argument("--limit", type=float, help="Kill the work on a message after this many seconds.")
    parser.add_argument("--parent-pid", required=True, type=int, help="End when this process, the parent, is gone.")
    parser.add_argument("--app", type=Path, help="Folder of the only app to run; FedEAS by default.")
    parser.add_argument("--preload", nargs="*", default=[], help="Modules to import before the app.")
    parser.add_argument("--ready-fd", required=True, type=int, help="File descriptor to write to when ready.")
    return parser


if __name__ == "__main__":
    main()
