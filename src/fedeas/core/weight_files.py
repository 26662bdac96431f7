"""Files of weights: find them by name from any folder, read them without torch, identify them by content."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from fedeas.core.digests import json_digest
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, cache_folder
from fedeas.core.tensor_files import described, digest_of_tensors, read_metadata

SUFFIX = ".safetensors"
GENERATOR = f"generator{SUFFIX}"  # the result of a generator's training in its folder
FOLDERS = "FEDEAS_WEIGHTS"
"""The environment variable with more folders of weights, separated as in PATH."""

PACKAGED = Path(__file__).parents[1] / "generators" / "diffusion" / "trained"
CURRENT = Path("weights")
IN_CHECKOUT = ("cifar10",)
"""Weights that are in a checkout's folder ``weights`` and too large for the package."""

TORCHVISION = "torchvision"
PRETRAINED = "-pretrained"
IMAGENET_STEM = "-imagenet-stem"
MADE_BY = {PRETRAINED: "fedeas pretrain {}", IMAGENET_STEM: "fedeas pretrain {} --stem imagenet"}
"""Commands that make initial weights, by the suffix after the dataset's name."""

CHOICES = f"a {SUFFIX} file, '{TORCHVISION}' or 'cifar100{PRETRAINED}'"


def is_name(place: PathLike) -> bool:
    """Whether this is a name of weights and not the path of a file: no suffix and no folder.

    >>> [is_name(place) for place in ("cifar10", "cifar10.safetensors", "weights/cifar10")]
    [True, False, False]
    """
    path = Path(place)
    return not path.suffix and len(path.parts) <= 1


def name_of_dataset(dataset: str) -> str:
    """The dataset's name in the form used in file names.

    >>> name_of_dataset("hub:owner/name")
    'hub-owner-name'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", dataset).strip("-")


def search_folders() -> list[Path]:
    """The folders that are searched for weights, in order.

    Package, ``$FEDEAS_WEIGHTS``, checkout, cache and current folder.
    """
    found: dict[Path, Path] = {}
    for folder in (PACKAGED, *_chosen_folders(), *_checkout_folders(), fetched_folder(), CURRENT):
        found.setdefault(folder.resolve(), folder)
    return list(found.values())


def folder_for_new() -> Path:
    """The folder for new weights: the first folder that is searched after the package's."""
    return [*_chosen_folders(), *_checkout_folders(), CURRENT][0]


def fetched_folder() -> Path:
    """The folder for weights that ``fedeas weights get`` fetched."""
    return cache_folder() / "weights"


def all_files() -> dict[str, Path]:
    """Every file of weights that can be given by name, with its name."""
    found: dict[str, Path] = {}
    for folder in search_folders():
        files = {file.stem: file for file in sorted(folder.glob(f"*{SUFFIX}"))}
        files |= {
            file.parent.name: file for file in sorted(folder.glob(f"*/{GENERATOR}")) if file.parent.name not in files
        }
        found = files | found
    return dict(sorted(found.items()))


def named_file(name: str) -> Path | None:
    """``NAME.safetensors`` or ``NAME/generator.safetensors`` in the first folder that has one of them."""
    files = (folder / file for folder in search_folders() for file in (f"{name}{SUFFIX}", f"{name}/{GENERATOR}"))
    return next((file for file in files if file.exists()), None)


def generator_weights(place: PathLike) -> Path:
    """The file of a generator, by path or name.

    >>> generator_weights("digits").name
    'digits.safetensors'
    """
    if not is_name(place):
        return Path(place)
    found = named_file(str(place))
    if found is None:
        generators = (name for name in all_files() if not name.endswith(tuple(MADE_BY)))  # not classifiers
        remedy = f"name one of {', '.join(generators)}, or make some with `fedeas generator train`"
        raise _none_called(str(place), remedy)
    return found


def model_weights(place: PathLike) -> Path | None:
    """The file of a model's initial weights, by path or name; None for no weights and for torchvision's own."""
    text = str(place)
    if text in ("", TORCHVISION):
        return None
    if not is_name(text):
        return Path(text)
    found = named_file(text)
    if found is None:
        made = (f"make them with `{MADE_BY[end].format(text[: -len(end)])}`" for end in MADE_BY if text.endswith(end))
        raise _none_called(text, next(made, f"give {CHOICES}"))
    return found


def weights_digest(path: PathLike) -> str:
    """SHA-256 of names, types, shapes and bytes of all tensors, without the metadata.

    A process reads a file once, unless its time or size changes.
    """
    return _digest_of_file(Path(path), of_tensors=True)


def folder_digest(folder: PathLike) -> str:
    """SHA-256 of names and bytes of all files below a folder, except hidden ones."""
    root = Path(folder).resolve()
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    shown = sorted(name for name in names if not any(part.startswith(".") for part in name.parts))
    content = [[name.as_posix(), _digest_of_file(root / name, of_tensors=False)] for name in shown]
    return json_digest(content)


def description(path: PathLike) -> dict[str, Any]:
    """The description in a file of this project; empty for files from elsewhere."""
    with _opened(Path(path)) as file:
        return described(read_metadata(file))


def _chosen_folders() -> list[Path]:
    return [Path(folder).expanduser() for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]


def _checkout_folders() -> list[Path]:
    root = checkout_of(Path(__file__).parents[1])
    return [] if root is None else [root / "weights"]


@cache
def checkout_of(package: Path) -> Path | None:
    """The checkout that a package is in: the folder that holds ``src`` and the pyproject.toml of fedeas."""
    source = package.resolve().parent
    root = source.parent
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = source.name == "src" and project.get("project", {}).get("name") == "fedeas"
    return root if is_ours else None


def _none_called(name: str, remedy: str) -> InputError:
    places = ", ".join(map(str, search_folders()))
    copied = f"copy {name}{SUFFIX} from the folder weights of a checkout to {fetched_folder()}, or "
    remedy = copied * (name in IN_CHECKOUT) + remedy
    return InputError(f"there are no weights called {name!r} in {places}; {remedy}")


def _digest_of_file(path: Path, of_tensors: bool) -> str:
    try:
        about = path.stat()
    except OSError:
        raise InputError(f"{path}: no such file") from None
    return _digest_of_state(path.resolve(), about.st_mtime_ns, about.st_size, of_tensors)


@cache
def _digest_of_state(path: Path, modified: int, size: int, of_tensors: bool) -> str:
    """The digest of a file; cached by its time and size."""
    with _opened(path) as file:
        return digest_of_tensors(file) if of_tensors else hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a readable {SUFFIX} file ({error})") from None
