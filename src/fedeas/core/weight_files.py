"""Files of weights and other tensors: written and read with a digest, found by name, fetched from the Hub.

The format is safetensors, never pickle.
"""

import hashlib
import importlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

from fedeas.core.arrays import json_digest
from fedeas.core.errors import InputError, log, reason_of
from fedeas.core.files import PathLike, cache_folder, make_folder, temporary, written_whole
from fedeas.core.records import DIGEST, KIND, checked_file, files_below, matching, unreadable

Framework = Literal["torch", "numpy"]

METADATA = "__metadata__"
BLOCK = 1 << 20  # bytes read at a time

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
HUB = "hub:"
FORM = f"{HUB}OWNER/REPOSITORY/FILE{SUFFIX}"


def write_tensors(
    path: PathLike, tensors: Mapping[str, Any], about: Mapping[str, str], framework: Framework = "torch"
) -> None:
    """Write tensors and metadata `about` them, with a digest of both; whole or not at all."""
    from safetensors import SafetensorError

    blank = KIND + "0" * 64  # as long as the digest that replaces it
    save_file = importlib.import_module(f"safetensors.{framework}").save_file
    folder = temporary(Path(path))  # safetensors puts a file of its own beside the one that it writes
    with written_whole(path) as part:
        try:
            folder.mkdir()
            save_file(dict(tensors), folder / part.name, metadata={**about, DIGEST: blank})
            part.touch()
            shutil.copymode(part, folder / part.name)  # safetensors lets nobody but the owner read its files
            (folder / part.name).replace(part)
        except SafetensorError as error:
            # The operating system's error is behind it, and only its text names it.
            found = re.search(r"\(os error (\d+)\)", str(error))
            raise (OSError(int(found[1]), os.strerror(int(found[1]))) if found else error) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        with part.open("r+b") as file:
            header, start = read_header(file)
            # safetensors writes the metadata in random order.
            header[METADATA] = dict(sorted({**header[METADATA], DIGEST: _content_digest(file)}.items()))
            file.seek(8)
            file.write(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(start - 8))


def read_tensors(
    path: PathLike, framework: Framework = "torch", device: str = "cpu"
) -> tuple[dict[str, str], dict[str, Any]]:
    """Read metadata and tensors of a file.

    A file that does not match its digest is refused; one without a digest is accepted, and that is logged.
    """
    from safetensors import SafetensorError, safe_open

    with _opened(path, SafetensorError) as plain:
        about = _metadata(plain)
        digest = about.pop(DIGEST, None)
        if digest is None and any(text.startswith(KIND) for text in about.values()):
            raise ValueError("the name of its digest is damaged")
        if digest is not None and digest != _content_digest(plain):
            raise ValueError("its content does not match its digest: it is damaged")
        if digest is None:
            log.info("%s: has no digest, so damage to it would not be noticed", path)
        with safe_open(path, framework=framework, device=device) as file:
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


@contextmanager
def _opened(path: PathLike, *errors: type[Exception]) -> Iterator[BufferedReader]:
    """Open a file of tensors; what a damaged header raises becomes one line with the path."""
    own = OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError
    damages: tuple[type[Exception], ...] = (*own, *errors)
    try:
        with Path(path).open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except damages as error:
        raise InputError(f"{path}: not a readable {SUFFIX} file ({reason_of(error)})") from None


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
    start = 8 + length
    needed = start + max((entry["data_offsets"][1] for name, entry in header.items() if name != METADATA), default=0)
    if end != needed:
        raise ValueError(f"it has {end:,} bytes, {needed:,} by its header")
    return header, start


def digest_of_tensors(file: BinaryIO) -> str:
    """SHA-256 of names, types, shapes and bytes of all tensors, without the metadata."""
    header, start = read_header(file)
    header.pop(METADATA, None)
    digest = hashlib.sha256()
    for name, entry in sorted(header.items()):
        first, last = entry["data_offsets"]
        digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
        file.seek(start + first)
        for left in range(last - first, 0, -BLOCK):
            digest.update(file.read(min(BLOCK, left)))
    return digest.hexdigest()


def _metadata(file: BinaryIO) -> dict[str, str]:
    found = read_header(file)[0].get(METADATA, {})
    return {str(name): str(text) for name, text in found.items()}


def _content_digest(file: BinaryIO) -> str:
    """The digest of the tensors and the metadata, as it stands in the metadata."""
    about = sorted((name, text) for name, text in _metadata(file).items() if name != DIGEST)
    return KIND + json_digest([about, digest_of_tensors(file)])


def described(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The description that this project wrote into the metadata of a file; empty for files from elsewhere."""
    about = json.loads(metadata.get("fedeas") or metadata.get("about") or "{}")
    return about if isinstance(about, dict) else {}


def description(path: PathLike) -> dict[str, Any]:
    """The description in a file of this project; empty for files from elsewhere."""
    with _opened(path) as file:
        return described(_metadata(file))


def weights_digest(path: PathLike) -> str:
    """SHA-256 of names, types, shapes and bytes of all tensors; a file is read again if its time or size changes."""
    return _digest_of_file(Path(path), of_tensors=True)


def folder_digest(folder: PathLike) -> str:
    """SHA-256 of names and bytes of all files below a folder, except hidden ones."""
    root = Path(folder).resolve()
    names = (path.relative_to(root) for path in files_below(root) if path.is_file())
    shown = sorted(name for name in names if not any(part.startswith(".") for part in name.parts))
    return json_digest([[name.as_posix(), _digest_of_file(root / name, of_tensors=False)] for name in shown])


def _digest_of_file(path: Path, of_tensors: bool) -> str:
    checked_file(path)
    about = path.stat()
    return _digest_of_state(path.resolve(), about.st_mtime_ns, about.st_size, of_tensors)


@cache
def _digest_of_state(path: Path, modified: int, size: int, of_tensors: bool) -> str:
    """The digest of a file; cached by its time and size."""
    with _opened(path) as file:
        return digest_of_tensors(file) if of_tensors else hashlib.file_digest(file, "sha256").hexdigest()


def is_name(place: PathLike) -> bool:
    """Whether this is a name of weights and not the path of a file: no suffix and no folder."""
    path = Path(place)
    return not path.suffix and len(path.parts) <= 1


def name_of_dataset(dataset: str) -> str:
    """The dataset's name in the form used in file names.

    >>> name_of_dataset("hub:owner/name")
    'hub-owner-name'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", dataset).strip("-")


def search_folders() -> list[Path]:
    """The folders that are searched, in order: package, ``$FEDEAS_WEIGHTS``, checkout, cache and current folder."""
    found: dict[Path, Path] = {}
    for folder in (PACKAGED, *_own_folders(), fetched_folder(), CURRENT):
        found.setdefault(folder.resolve(), folder)
    return list(found.values())


def folder_for_new() -> Path:
    """The folder for new weights: the first folder that is searched after the package's."""
    return [*_own_folders(), CURRENT][0]


def fetched_folder() -> Path:
    """The folder for weights that ``fedeas weights get`` fetched."""
    return cache_folder() / "weights"


def _own_folders() -> list[Path]:
    root = checkout_of(Path(__file__).parents[1])
    chosen = [Path(folder).expanduser() for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    return chosen if root is None else [*chosen, root / "weights"]


@cache
def checkout_of(package: Path) -> Path | None:
    """The checkout that a package is in: the folder that holds ``src`` and the pyproject.toml of fedeas."""
    source = package.resolve().parent
    try:
        project = tomllib.loads((source.parent / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = source.name == "src" and project.get("project", {}).get("name") == "fedeas"
    return source.parent if is_ours else None


def all_files() -> dict[str, Path]:
    """Every file of weights that can be given by name: ``NAME.safetensors`` or ``NAME/generator.safetensors``."""
    found: dict[str, Path] = {}
    for folder in search_folders():
        trained = {file.parent.name: file for file in matching(folder, f"*/{GENERATOR}")}
        found = {**trained, **{file.stem: file for file in matching(folder, f"*{SUFFIX}")}, **found}
    return dict(sorted(found.items()))


def generator_weights(place: PathLike) -> Path:
    """The file of a generator, by path or name.

    >>> generator_weights("digits").name
    'digits.safetensors'
    """
    if not is_name(place):
        return Path(place)
    files = all_files()
    generators = ", ".join(name for name in files if not name.endswith(tuple(MADE_BY)))  # not classifiers
    remedy = f"name one of {generators}, or make some with `fedeas generator train`"
    return files.get(str(place)) or _refuse(str(place), remedy)


def model_weights(place: PathLike) -> Path | None:
    """The file of a model's initial weights, by path or name; None for no weights and for torchvision's own."""
    text = str(place)
    if text in ("", TORCHVISION):
        return None
    if not is_name(text):
        return Path(text)
    made = (f"make them with `{MADE_BY[end].format(text[: -len(end)])}`" for end in MADE_BY if text.endswith(end))
    return all_files().get(text) or _refuse(text, next(made, f"give {CHOICES}"))


def _refuse(name: str, remedy: str) -> NoReturn:
    places = ", ".join(map(str, search_folders()))
    copied = f"copy {name}{SUFFIX} from the folder weights of a checkout to {fetched_folder()}, or "
    remedy = copied * (name in IN_CHECKOUT) + remedy
    raise InputError(f"there are no weights called {name!r} in {places}; {remedy}")


def get_weights(source: str, name: str | None = None) -> Path:
    """Put weights into the cache folder, under this name or the file's own, and return their file.

    `source` is a file or ``hub:OWNER/REPOSITORY/FILE.safetensors``.
    """
    address = re.fullmatch(rf"{HUB}([^/]+/[^/]+)/(.*{re.escape(SUFFIX)})", source)
    if address is None and (source.startswith(HUB) or not source.endswith(SUFFIX)):
        raise InputError(f"{source}: give a {SUFFIX} file or {FORM}")
    path = Path(source)
    usual = path.parent.name if path.name == GENERATOR else path.stem  # a training's result is called as its folder
    target = fetched_folder() / f"{name or usual}{SUFFIX}"
    if address is not None:
        from huggingface_hub import hf_hub_download

        with explained(f"{address[1]}: {address[2]}", f"download it elsewhere and copy it to {target}"):
            path = Path(hf_hub_download(address[1], address[2]))
    weights_digest(path)  # an unreadable file is refused before it is kept
    make_folder(target.parent)
    with written_whole(target) as part:
        shutil.copyfile(path, part)
    return target


@contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Turn any error of a download into one line: what cannot be fetched, why, and what to do instead."""
    try:
        yield
    except Exception as error:  # errors of network, hub and disk have many unrelated types
        fact = f"{what} cannot be fetched from the Hugging Face Hub ({reason_of(error)})"
        raise InputError(f"{fact}; check the name and the network, or {remedy}") from None
