"""Put weights into the cache folder, from a file or from the Hugging Face Hub."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, written_whole
from fedeas.core.hub_errors import explained
from fedeas.core.weight_files import GENERATOR, SUFFIX, fetched_folder, is_name, named_file, weights_digest

HUB = "hub:"
FORM = f"{HUB}OWNER/REPOSITORY/FILE{SUFFIX}"


def get_weights(source: str, name: str | None = None) -> Path:
    """Put weights into the cache folder, under this name or the file's own, and return their file.

    `source` is a file or ``hub:OWNER/REPOSITORY/FILE.safetensors``. If it is a name, nothing is copied.
    """
    if is_name(source):
        return _found(source)
    where, _, file = source.rpartition("/")
    target = fetched_folder() / f"{name or _usual_name(source)}{SUFFIX}"
    origin = _downloaded(where.removeprefix(HUB), file, target) if source.startswith(HUB) else Path(source)
    weights_digest(origin)  # an unreadable file is refused before it is kept
    make_folder(target.parent)
    with written_whole(target) as part:
        shutil.copyfile(origin, part)
    return target


def _found(name: str) -> Path:
    path = named_file(name)
    if path is None:
        raise InputError(
            f"{name!r}: weights of this name are not here, and they have no address on the Hub; copy {name}{SUFFIX} "
            f"to {fetched_folder()}, or give {FORM}"
        )
    return path


def _usual_name(source: str) -> str:
    """The file's name, or that of its folder if it is the result of a generator's training."""
    path = Path(source)
    return path.parent.name if path.name == GENERATOR else path.stem


def _downloaded(repository: str, file: str, target: Path) -> Path:
    owner, _, rest = repository.partition("/")
    short, _, below = rest.partition("/")
    if not (owner and short and file.endswith(SUFFIX)):
        raise InputError(f"{HUB}{repository}/{file}: not of the form {FORM}")
    from huggingface_hub import hf_hub_download

    with explained(f"{owner}/{short}: {file}", f"download it elsewhere and copy it to {target}"):
        found = hf_hub_download(f"{owner}/{short}", f"{below}/{file}" if below else file)
    return Path(found)
