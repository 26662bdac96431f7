"""The Hugging Face Hub: errors while something is fetched, and weights that are put into the cache folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, written_whole
from fedeas.core.records import reason_of
from fedeas.core.weight_files import GENERATOR, SUFFIX, fetched_folder, is_name, named_file, weights_digest

HUB = "hub:"
FORM = f"{HUB}OWNER/REPOSITORY/FILE{SUFFIX}"


@contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Turn any error of a download into one line: what cannot be fetched, why, and what to do instead."""
    try:
        yield
    except Exception as error:  # errors of network, hub and disk have many unrelated types
        fact = f"{what} cannot be fetched from the Hugging Face Hub ({reason_of(error)})"
        raise InputError(f"{fact}; check the name and the network, or {remedy}") from None


def get_weights(source: str, name: str | None = None) -> Path:
    """Put weights into the cache folder, under this name or the file's own, and return their file.

    `source` is a file or ``hub:OWNER/REPOSITORY/FILE.safetensors``. If it is a name, nothing is copied.
    """
    if is_name(source):
        path = named_file(source)
        if path is None:
            raise InputError(
                f"{source!r}: weights of this name are not here, and they have no address on the Hub; copy "
                f"{source}{SUFFIX} to {fetched_folder()}, or give {FORM}"
            )
        return path
    path = Path(source)
    usual = path.parent.name if path.name == GENERATOR else path.stem  # a training's result is called as its folder
    target = fetched_folder() / f"{name or usual}{SUFFIX}"
    origin = _downloaded(source, target) if source.startswith(HUB) else Path(source)
    weights_digest(origin)  # an unreadable file is refused before it is kept
    make_folder(target.parent)
    with written_whole(target) as part:
        shutil.copyfile(origin, part)
    return target


def _downloaded(source: str, target: Path) -> Path:
    owner, _, rest = source.removeprefix(HUB).partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository and file.endswith(SUFFIX)):
        raise InputError(f"{source}: not of the form {FORM}")
    from huggingface_hub import hf_hub_download

    with explained(f"{owner}/{repository}: {file}", f"download it elsewhere and copy it to {target}"):
        return Path(hf_hub_download(f"{owner}/{repository}", file))
