"""Run a program and write each line that it prints as a JSON object: ``python -m deploy.flower.json_lines``.

FedEAS, Flower, its web server and the app all print in their own ways, from several processes. Here the lines of all of
them get the same form, for systems that collect logs::

    {"time": "2026-01-31T12:00:00.000+00:00", "level": "warning", "service": "node", "message": "..."}
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from types import FrameType

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LEVEL = "(?P<level>debug|info|warning|error|critical)"
FORMS = (
    re.compile(rf"{LEVEL}\s*:\s*(?P<message>.*)", re.IGNORECASE),  # of FedEAS and Flower
    re.compile(rf"[\d-]+[ T][\d:.,Z+]+ {LEVEL} (?P<message>.*)", re.IGNORECASE),  # of Flower's web server
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_FOUND = 127
"""Exit code of a program that cannot be started, as in a shell."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program to its end; return its exit code, or 128 and the number of the signal that ended it."""
    options = _parser().parse_args(arguments)
    return run(options.command, options.service, partial(print, flush=True))


def run(command: Sequence[str], service: str, show: Callable[[str], None]) -> int:
    """Run a command, pass the signals that this process gets on to it, and give each line as JSON to `show`."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    except OSError as error:
        show(as_json(f"error: {command[0]}: cannot be started ({error.strerror})", service))
        return NOT_FOUND
    with process, _passing_signals_to(process):
        assert process.stdout is not None
        # Its children print until they see that it has ended, and they see it as long as nobody waits for it.
        threading.Thread(target=process.wait, daemon=True).start()
        for line in process.stdout:
            if line.strip():
                show(as_json(line, service))
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _passing_signals_to(process: subprocess.Popen[str]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {each: signal.signal(each, pass_on) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def as_json(line: str, service: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    """A line as a JSON object; a level at its beginning becomes a field.

    >>> as_json("WARNING :   client 1 is late", "server", lambda: datetime(2026, 1, 31, tzinfo=UTC))
    '{"time": "2026-01-31T00:00:00.000+00:00", "level": "warning", "service": "server", "message": "client 1 is late"}'
    """
    text = COLOUR.sub("", line).strip()
    found = next((found for form in FORMS if (found := form.match(text))), None)
    level, message = (found["level"].lower(), found["message"]) if found else ("info", text)
    time = now().isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "level": level, "service": service, "message": message}, ensure_ascii=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m deploy.flower.json_lines", description=__doc__.partition("\n")[0])
    parser.add_argument("--service", required=True, help="Name of the program in the lines.")
    parser.add_argument("command", nargs="+", help="The program and its arguments, after --.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
