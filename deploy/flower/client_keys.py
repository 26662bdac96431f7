"""Which key is which client: a TOML file that the operator keeps, one line for each client::

    0 = "ecdsa-sha2-nistp384 AAAA... hospital-a"

Only public keys stand in it. At the start of a run the operator's machine looks up the nodes that were registered with
these keys; the server then takes each client's messages from its node alone.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from deploy.flower.internals.superlink import SuperLink
from deploy.flower.keys import LOCK, pem_of
from fedeas.core.errors import InputError
from fedeas.core.files import write_bytes
from fedeas.core.locks import locked
from fedeas.core.records import read_bytes

ClientKeys = Mapping[int, str]


def read_client_keys(path: Path) -> dict[int, str]:
    """The public key of each client."""
    try:
        given = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no TOML ({error}); `fedeas flower register` writes it") from None
    keys: dict[int, str] = {}
    for number, key in given.items():
        if not number.isdecimal():
            raise InputError(f"{path}: {number} is no client number; clients count from 0")
        keys[int(number)] = _checked(path, number, key)
    _check_distinct(path, keys)
    return keys


def listed_keys(path: Path) -> dict[int, str]:
    """The public key of each client; none if the file does not exist yet."""
    return read_client_keys(path) if path.exists() else {}


@contextmanager
def changing_client_keys(path: Path) -> Iterator[dict[int, str]]:
    """Give the keys to a ``with`` block and write them at its end; after an error the file is unchanged.

    Meanwhile other commands that change the file wait.
    """
    with locked(path.parent / LOCK):
        keys = listed_keys(path)
        yield keys
        lines = (f"{number} = {json.dumps(key)}\n" for number, key in sorted(keys.items()))
        write_bytes(path, "".join(lines).encode())


def bind_client(path: Path, client: int, public_key: str) -> None:
    """Add a client's key to the file; a number or a key that is taken is refused."""
    with changing_client_keys(path) as keys:
        add_client(path, keys, client, public_key)


def add_client(path: Path, keys: dict[int, str], client: int, public_key: str) -> None:
    """Add a client's key to the keys of the file; a number or a key that is taken is refused."""
    if client in keys and pem_of(keys[client]) != pem_of(public_key):
        raise InputError(f"{path}: client {client} has another key; remove its line if that key is no longer valid")
    keys[client] = public_key.strip()
    _check_distinct(path, keys)


def next_client(keys: ClientKeys, public_key: str) -> int:
    """The number of the client with this key; for a new key, the first number that is free."""
    own = next((client for client, key in keys.items() if pem_of(key) == pem_of(public_key)), None)
    return next(number for number in count() if number not in keys) if own is None else own


def nodes_of(path: Path, keys: ClientKeys, superlink: SuperLink) -> dict[int, int]:
    """The node id that the SuperLink gave to each client's key."""
    registered = {node.key: node_id for node_id, node in superlink.nodes().items()}
    unknown = [client for client, key in sorted(keys.items()) if pem_of(key) not in registered]
    if unknown:
        remedy = "register it with `fedeas flower register`"
        raise InputError(f"{path}: the SuperLink does not know the key of client {unknown[0]}; {remedy}")
    return {client: registered[pem_of(key)] for client, key in keys.items()}


def _checked(path: Path, number: str, key: object) -> str:
    try:
        pem_of(str(key))
    except ValueError:
        raise InputError(f"{path}: client {number}: no public key; copy the line in its .pub file") from None
    return str(key)


def _check_distinct(path: Path, keys: ClientKeys) -> None:
    seen: dict[bytes, int] = {}
    for client, key in sorted(keys.items()):
        other = seen.setdefault(pem_of(key), client)
        if other != client:
            raise InputError(f"{path}: clients {other} and {client} have the same key; give each client its own")
