"""The operator's connection file: where a SuperLink is, and the keys that are needed there.

It is TOML with paths relative to itself::

    address = "server.example.org:8001"
    root-certificate = "ca.pem"
    key = "operator.key"
    clients = "clients.toml"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import write_bytes
from fedeas.core.records import read_bytes

Scalar = str | int | float | bool

REQUIRED = ("address", "root-certificate", "key")
NAMES = (*REQUIRED, "clients")


@dataclass(frozen=True)
class Connection:
    """The address of a SuperLink's operator port, the authority's certificate, the operator's key and the clients."""

    address: str
    authority: Path
    key: Path
    clients: Path | None = None

    @staticmethod
    def read(path: Path) -> Connection:
        """Read a connection file."""
        given = _texts(path)
        unknown, missing = sorted(given.keys() - set(NAMES)), [name for name in REQUIRED if name not in given]
        if unknown or missing:
            wrong = f"unknown {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is missing"
            raise InputError(f"{path}: {wrong}; a connection has {', '.join(NAMES)}")
        files = {name: path.absolute().parent / given[name] for name in given if name != "address"}
        return Connection(given["address"], files["root-certificate"], files["key"], files.get("clients"))

    def write(self, path: Path) -> None:
        """Write a connection file, in a folder above all files that it names."""
        named = (self.authority, self.key, self.clients)
        files = [str(file.relative_to(path.parent)) for file in named if file is not None]
        write_bytes(path, toml_of(dict(zip(NAMES, [self.address, *files], strict=False))).encode())


def toml_of(values: Mapping[str, Scalar]) -> str:
    """The values as flat TOML; JSON scalars are valid TOML scalars."""
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())


def _texts(path: Path) -> dict[str, str]:
    if not path.exists():
        raise InputError(f"{path}: no such connection file; `fedeas flower keys` writes one, and so does `up`")
    try:
        given = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no TOML ({error}); write lines such as key = 'operator.key'") from None
    wrong = [name for name, value in given.items() if not isinstance(value, str)]
    if wrong:
        raise InputError(f"{path}: {wrong[0]} is no text; put it in quotes")
    return given
