"""SHA-256 digests, which identify content."""

from __future__ import annotations

import hashlib
import json


def json_digest(content: object, *, sort_keys: bool = False) -> str:
    """The digest of what JSON can hold; with `sort_keys` the order of keys makes no difference.

    >>> json_digest({"a": 1, "b": 2}, sort_keys=True) == json_digest({"b": 2, "a": 1}, sort_keys=True)
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=sort_keys).encode()).hexdigest()
