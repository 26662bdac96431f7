"""Files of tensors: safetensors, never pickle, with a digest of their whole content that is checked on reading."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

from fedeas.core.digests import json_digest
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, temporary, written_whole
from fedeas.core.log import log
from fedeas.core.records import DIGEST, KIND, reason_of, unreadable

Framework = Literal["torch", "numpy"]

METADATA = "__metadata__"
BLOCK = 1 << 20  # bytes read at a time

_unchecked: set[Path] = set()  # files without a digest that have been logged


def write_tensors(
    path: PathLike, tensors: Mapping[str, Any], about: Mapping[str, str], framework: Framework = "torch"
) -> None:
    """Write tensors and metadata `about` them, with a digest of both; whole or not at all."""
    from safetensors import SafetensorError

    blank = KIND + "0" * 64  # as long as the digest that replaces it
    save_file = importlib.import_module(f"safetensors.{framework}").save_file
    with written_whole(path) as part, _own_folder(Path(path)) as folder:
        try:
            save_file(dict(tensors), folder / part.name, metadata={**about, DIGEST: blank})
        except SafetensorError as error:
            # The operating system's error is behind it, and only its text names it.
            found = re.search(r"\(os error (\d+)\)", str(error))
            raise (OSError(int(found[1]), os.strerror(int(found[1]))) if found else error) from None
        part.touch()
        shutil.copymode(part, folder / part.name)  # safetensors lets nobody but the owner read its files
        (folder / part.name).replace(part)
        with part.open("r+b") as file:
            header, start = read_header(file)
            # safetensors writes the metadata in random order.
            header[METADATA] = dict(sorted({**header[METADATA], DIGEST: KIND + _content_digest(file)}.items()))
            file.seek(8)
            file.write(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(start - 8))


@contextmanager
def _own_folder(path: Path) -> Iterator[Path]:
    """A folder that is removed after a kill, too: safetensors puts a file of its own beside the one that it writes."""
    folder = temporary(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_tensors(
    path: PathLike, framework: Framework = "torch", device: str = "cpu"
) -> tuple[dict[str, str], dict[str, Any]]:
    """Read the metadata of a file, and its tensors by name.

    A file that does not match its digest is refused. A file without a digest, from elsewhere or from an older version,
    is accepted, and that is logged once.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with Path(path).open("rb") as plain:
            about = _checked_metadata(plain, Path(path))
        with safe_open(path, framework=framework, device=device) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a readable .safetensors file ({reason_of(error)})") from None
    return about, tensors


def digest_of_tensors(file: BinaryIO) -> str:
    """SHA-256 of names, types, shapes and bytes of all tensors, without the metadata."""
    header, start = read_header(file)
    digest = hashlib.sha256()
    for name, entry in sorted(header.items()):
        if name == METADATA:
            continue
        first, last = entry["data_offsets"]
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
        file.seek(start + first)
        for left in range(last - first, 0, -BLOCK):
            block = file.read(min(BLOCK, left))
            if len(block) < min(BLOCK, left):
                raise ValueError("its end is missing")
            digest.update(block)
    return digest.hexdigest()


def read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, with an entry for each tensor and the metadata, and the position of the tensors' first byte."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= end - 8:
        raise ValueError("it has no header")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, 8 + length


def read_metadata(file: BinaryIO) -> dict[str, str]:
    """The metadata of an open file, unchecked and without the digest."""
    return {name: text for name, text in _metadata(file).items() if name != DIGEST}


def described(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The description that this project wrote into the metadata of a file; empty for files from elsewhere."""
    about = json.loads(metadata.get("fedeas") or metadata.get("about") or "{}")
    return about if isinstance(about, dict) else {}


def _checked_metadata(file: BinaryIO, path: Path) -> dict[str, str]:
    metadata = _metadata(file)
    if DIGEST in metadata:
        if metadata[DIGEST] != KIND + _content_digest(file):
            raise ValueError("its content does not match its digest: it is damaged")
    elif any(text.startswith(KIND) for text in metadata.values()):
        raise ValueError("the name of its digest is damaged")
    elif path.resolve() not in _unchecked:
        _unchecked.add(path.resolve())
        log.info("%s: has no digest, so damage to it would not be noticed", path)
    return read_metadata(file)


def _metadata(file: BinaryIO) -> dict[str, str]:
    found = read_header(file)[0].get(METADATA, {})
    return {str(name): str(text) for name, text in found.items()}


def _content_digest(file: BinaryIO) -> str:
    """SHA-256 of the tensors and the metadata."""
    return json_digest([sorted(read_metadata(file).items()), digest_of_tensors(file)])
