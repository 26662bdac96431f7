"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedeas.errors import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, moved onto it at the end; after an error `path` is as it was before."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist; create it first")
    part = target.with_name(f".{target.stem}-{secrets.token_hex(4)}{target.suffix}")
    try:
        yield part
        part.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror or error})") from None
    finally:
        part.unlink(missing_ok=True)
