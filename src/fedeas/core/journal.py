"""Files of records to which a line is added for each event, such as each answer of a node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedeas.core.files import append_line, make_folder, writing
from fedeas.core.records import Record, line_of, read_bytes, read_lines


class Journal:
    """A file with one record on each line; `remedy` says in errors what to do about a damaged one.

    Add a record before you do what it stands for: `add` returns when the line is on the disk. A kill may leave half a
    line at the end. `add` has not returned then, and nothing has been done, so that half a line is ignored. All other
    damage is refused.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self.path, self.remedy = path, remedy

    def read(self) -> list[Record]:
        """All records."""
        content = self._content()
        whole = content[: _whole_length(content)].removesuffix(b"\n")
        return read_lines(self.path, whole.split(b"\n") if whole else [], self.remedy)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record and wait until it is on the disk."""
        make_folder(self.path.parent)
        content = self._content()
        if content and not content.endswith(b"\n"):  # half a line is removed; a whole one, as of an editor, is ended
            with writing(self.path), self.path.open("r+b") as file:
                file.truncate(_whole_length(content))
                if file.seek(0, os.SEEK_END) == len(content):
                    file.write(b"\n")
        append_line(self.path, line_of(record))

    def _content(self) -> bytes:
        return read_bytes(self.path) if self.path.exists() else b""


def _whole_length(content: bytes) -> int:
    """Bytes of a journal up to half a line at its end: a JSON object without its end is not JSON."""
    complete = content.rfind(b"\n") + 1
    try:
        json.loads(content[complete:])
    except ValueError:
        return complete
    return len(content)
