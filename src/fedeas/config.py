"""The config of a run: frozen sections, read from TOML, overridden by ``key=value``, hashed to a fingerprint.

Unknown keys, unknown names and wrong types are errors. The fingerprint follows the meaning of a config: all spellings
of a run have one fingerprint. Keys that do not change the result (where data are, which device computes) are left out
of it. When a run starts, it writes digests of its data, weights and code into the section ``content``
(`fedeas.federation.identity`).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from fedeas.core.digests import json_digest
from fedeas.core.foreign_text import printable
from fedeas.core.inputs import checked_file, is_there
from fedeas.core.own_code import PREFIX
from fedeas.core.spec import read_call
from fedeas.data.sources import checked_name, is_place
from fedeas.errors import InputError
from fedeas.generators.registry import parse_generator, without_places
from fedeas.hyperparameters import SCAFFOLD, algorithm_spec, parse_hyperparameters, parse_loss
from fedeas.planning.policies import policy_spec

RULES = 2
"""Part of every fingerprint. Raise it when the same config gives other numbers, so that old results are not reused."""

NO_GENERATION = "no-generation"
OWN = "own"
"""The partition scheme of clients that bring their own data."""

MAX_CONFIG_BYTES = 2**20
PACKAGED = Path(__file__).parent / "configs"
MAX_NUMBER = 2**63 - 1

Positive = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Seed = Annotated[int, Field(ge=0, lt=2**62)]  # leaves room to add to it
Proportion = Annotated[float, Field(gt=0, le=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class DataConfig(_Section):
    """Which images are used, and which of them are for testing.

    Protocol ``clean``: the official training part goes to the clients, the official test part to the server.
    Protocol ``paper``: both are merged and split as the paper did; the clients' test parts are pooled at the server.
    In the clean protocol `held_out` images of the training part, the same number of each class, go to no client: they
    are for the generator ``held-out``.
    """

    dataset: str = "digits"
    protocol: Literal["clean", "paper"] = "clean"
    held_out: Annotated[int, Field(ge=0)] = 0
    root: str | None = None

    @field_validator("dataset")
    @classmethod
    def _is_known(cls, name: str) -> str:
        return checked_name(name)


class PartitionConfig(_Section):
    """How the images are split over clients; ``paper`` replays the paper's partition and goes with its protocol.

    ``natural`` keeps the clients that the dataset comes with (``client/class/*.png``). ``file`` reads `file`, a table
    of samples and clients, or what ``fedeas partition --out`` wrote. Both bring their number of clients. With ``own``
    each client brings its own samples on its Flower node, and the server has no training data. ``auto`` is
    ``file`` if there is one, ``natural`` for a dataset with clients, and ``dirichlet`` otherwise.
    With `redraw` the split is drawn with `seed` plus the run's seed, so that each seed of the run has its own clients.
    """

    scheme: Literal["auto", "dirichlet", "iid", "shards", "natural", "file", "own", "paper"] = "auto"
    clients: Positive = 20
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    per_client: Positive = 2
    min_size: Positive = 1
    cap: bool = False
    seed: Seed = 42
    redraw: bool = False
    file: str = ""

    @model_validator(mode="after")
    def _file_goes_with_its_scheme(self) -> PartitionConfig:
        if bool(self.file) != (self.scheme == "file") and not (self.file and self.scheme == "auto"):
            raise ValueError("partition.file and partition.scheme 'file' go together; set both or neither")
        return self

    def chosen(self, has_clients: bool) -> str:
        """The scheme, with ``auto`` decided."""
        if self.scheme != "auto":
            return self.scheme
        return "file" if self.file else "natural" if has_clients else "dirichlet"


MODEL_NAMES = ("auto", "small-cnn", "resnet18")


class ModelConfig(_Section):
    """The network; ``auto`` is the small CNN below 16 pixels and ResNet-18 from there on.

    Without a GPU, ``fedeas run`` and `fedeas.run` take the small CNN for images of every size.
    A model of one's own is ``python:module:name(...)``, or what an installed package registers.
    """

    name: str = "auto"
    stem: Literal["3x3", "imagenet"] = "3x3"
    norm: Literal["auto", "batch", "group", "none"] = "auto"
    weights: str = ""
    projection: Annotated[int, Field(ge=0)] = 0

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        call = read_call(name, MODEL_NAMES, "model")
        if call.arguments and not call.name.startswith(PREFIX):
            raise ValueError(f"model {call.name} takes no arguments; set model.stem, model.norm and the like")
        return call.spec

    @property
    def usual_norm(self) -> str:
        """The norm; for ``auto`` the usual one of the model."""
        return {"resnet18": "batch", "small-cnn": "none"}.get(self.name, "auto") if self.norm == "auto" else self.norm

    def named(self, name: str) -> ModelConfig:
        """The same for the model of this name, with its norm."""
        model = self.model_copy(update={"name": name})
        return model.model_copy(update={"norm": model.usual_norm})


class TrainConfig(_Section):
    """Local training; the defaults are the paper's, and off where the paper says nothing.

    With `steps` above 0 a client takes that many steps in a round instead of `epochs` passes over its data, all of them
    with whole batches: every client and every policy then does the same work. (SCAFFOLD's option I also reads all data
    of a client once a round, which is not counted.) `loss` may correct for the client's label counts, e.g.
    ``balanced-softmax``. With `sampling` ``balanced`` a client sees each class that it holds equally often, samples of
    rare classes several times; the number of batches stays the same. With `server_epochs` above 0 the images of the
    plan stay at the server: it trains the initial model on them for that many passes, and clients train on real images.
    """

    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    batch_size: Positive = 64
    epochs: Positive = 10
    steps: Annotated[int, Field(ge=0)] = 0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Literal["none", "flip", "crop-flip"] = "none"
    loss: str = "cross-entropy"
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    server_epochs: Annotated[int, Field(ge=0)] = 0

    @field_validator("loss")
    @classmethod
    def _in_one_spelling(cls, text: str) -> str:
        return parse_loss(text).spec


class RoundsConfig(_Section):
    """How many rounds, how many clients in each, and what is measured."""

    total: Positive = 200
    participation: Proportion = 0.5
    eval_every: Positive = 1
    threshold: Proportion = 0.7
    gamma_hat: bool = True


class EngineConfig(_Section):
    """How a run is computed. Only the precision is part of the fingerprint.

    ``fast`` trains several clients at once, in the way that suits device, model and algorithm: stacked into one model
    (``fused``) or in ``lanes`` on a GPU, in processes on a CPU. ``local`` trains one after the other; ``flower`` sends
    them to the nodes of a Flower federation, or simulates one.
    `lanes` is the number of lanes, 0 to choose by memory; `compile` compiles the model of each, worthwhile in long
    runs. `processes` is the number of processes, 0 to choose by cores and time, 1 for none.
    `threads` is the number of cores for a run; on Flower, for a client.
    On Flower, a round waits `timeout` seconds for its clients and continues if at least `min_share` of them replied;
    `share_counts` allows policies and measures that need the clients' label counts.
    """

    name: Literal["fast", "local", "lanes", "fused", "flower"] = "fast"
    device: str = "auto"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    lanes: Annotated[int, Field(ge=0)] = 0
    processes: Annotated[int, Field(ge=0)] = 0
    compile: bool = False
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    min_share: Proportion = 0.5
    share_counts: bool = False


class ContentConfig(_Section):
    """SHA-256 digests of the parts of a run: data, split, initial weights, and generator.

    The last three are of a user's own code (``python:module:name``), and empty without it.

    A run fills them in when it starts. If a config gives a digest and the content differs, the run is refused.
    """

    data: Digest = ""
    partition: Digest = ""
    weights: Digest = ""
    generator: Digest = ""
    policy: Digest = ""
    algorithm: Digest = ""
    model: Digest = ""


class RunConfig(_Section):
    """Everything that defines a run; policy, generator and algorithm are kept in their one canonical spelling."""

    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = "run"
    seed: Seed = 0
    policy: str = "no-generation"
    generator: str = "gaussian"
    algorithm: str = "fedavg"
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    rounds: RoundsConfig = RoundsConfig()
    engine: EngineConfig = EngineConfig()
    content: ContentConfig = ContentConfig()

    @field_validator("policy", "generator", "algorithm")
    @classmethod
    def _in_one_spelling(cls, text: str, info: ValidationInfo) -> str:
        return _canonical(str(info.field_name), text)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> RunConfig:
        if (self.data.protocol == "paper") != (self.partition.scheme == "paper"):
            raise ValueError("data.protocol 'paper' and partition.scheme 'paper' go together; set both or neither")
        if PREFIX not in self.algorithm and isinstance(own := parse_hyperparameters(self.algorithm), SCAFFOLD):
            own.check_momentum(self.train.momentum)
        if self.train.server_epochs and self.engine.name == "flower":
            raise ValueError("train.server_epochs does not go with engine.name 'flower'; use another engine")
        if self.data.held_out and self.data.protocol != "clean":
            raise ValueError(
                "data.held_out needs data.protocol 'clean'; the paper's protocol gives all images to clients"
            )
        if self.policy.startswith("pool(") and not self.generator.startswith(("shared(", PREFIX)):
            shared = f"generator=shared(of={self.generator})"
            raise ValueError(f"policy pool counts images that all clients share; set {shared}")
        return self

    @property
    def participants(self) -> int:
        """Clients of a round, at least one."""
        return max(1, round(self.rounds.participation * self.partition.clients))

    @property
    def generates(self) -> bool:
        """Whether the policy can allocate any images."""
        return _canonical("policy", self.policy) != NO_GENERATION

    @property
    def drawn_partition(self) -> PartitionConfig:
        """The partition with the seed that this run uses for it."""
        seed = self.partition.seed + (self.seed if self.partition.redraw else 0)
        return self.partition.model_copy(update={"seed": seed, "redraw": False})

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the result: equal for two configs of the same run."""
        return json_digest([RULES, self._meaning()], sort_keys=True)

    @property
    def method(self) -> str:
        """The fingerprint without the seed and what is drawn with it: the same for all seeds of a method."""
        redrawn = {"partition": ""} if self.partition.redraw else {}
        return self.model_copy(update={"seed": 0, "content": self.content.model_copy(update=redrawn)}).fingerprint

    @property
    def unpinned(self) -> RunConfig:
        """The same config without digests. Tables use it to look runs up, because they do not load data."""
        return self.model_copy(update={"content": ContentConfig()})

    def _meaning(self) -> dict[str, Any]:
        """Every choice in its canonical spelling, without those that do not change the result."""
        place: Any = {"label": True, "data": {"root"}, "engine": set(EngineConfig.model_fields) - {"precision"}}
        meaning = self.model_dump(exclude=place)
        for kind in ("policy", "generator", "algorithm"):
            meaning[kind] = _canonical(kind, meaning[kind])
        scheme = meaning["partition"]["scheme"] = self.partition.chosen(has_clients=False)
        _drop(meaning["partition"], set().union(*SPLIT_FIELDS.values()) - {*SPLIT_FIELDS[scheme]})
        _drop(meaning["partition"], {"seed"} if scheme in UNSEEDED else set())
        _drop(meaning["train"], {"epochs"} if self.train.steps else set())
        meaning["rounds"]["participation"] = self.participants
        meaning["model"]["norm"] = self.model.usual_norm
        self._drop_names_of_content(meaning)
        for (section, name), value in ADDED_LATER.items():
            _drop(meaning[section], {name} if meaning[section].get(name) == value else set())
        return meaning

    def _drop_names_of_content(self, meaning: dict[str, Any]) -> None:
        """Drop names and paths of content whose digest is known."""
        if not self.generates:
            _drop(meaning, {"generator"})
            _drop(meaning["content"], {"generator"})
        elif self.content.generator:
            meaning["generator"] = without_places(self.generator)
        if self.content.weights:
            _drop(meaning["model"], {"weights"})
        if self.content.partition and meaning["partition"]["scheme"] in UNSEEDED:  # one split, wherever it comes from
            meaning["partition"] |= {"scheme": "given", "file": ""}
        if self.content.data and is_place(self.data.dataset):
            _drop(meaning["data"], {"dataset"})

    @property
    def flat(self) -> dict[str, Any]:
        """All values by their keys on the command line, such as ``train.lr``."""
        content = self.model_dump(mode="json")
        sections = {name: content.pop(name) for name in list(content) if isinstance(content[name], dict)}
        return content | {f"{name}.{key}": value for name, part in sections.items() for key, value in part.items()}

    @property
    def directory(self) -> str:
        """The name of the run's folder."""
        return f"{self.label}-{self.fingerprint[:8]}"


SPLIT_FIELDS = {
    "dirichlet": ("alpha", "min_size", "cap"),
    "iid": (),
    "shards": ("per_client",),
    "natural": (),
    "file": (),
    "own": (),
    "paper": ("alpha",),
}
"""Which fields each scheme reads, besides clients and seed."""

UNSEEDED = ("natural", "file", OWN)
"""Schemes that draw nothing."""

ADDED_LATER: dict[tuple[str, str], object] = {
    ("train", "steps"): 0,
    ("train", "loss"): "cross-entropy",
    ("train", "sampling"): "shuffled",
    ("train", "server_epochs"): 0,
    ("partition", "redraw"): False,
    ("partition", "file"): "",
    ("data", "held_out"): 0,
    ("content", "policy"): "",
    ("content", "algorithm"): "",
    ("content", "model"): "",
}
"""Newer fields with the value that equals the old behaviour. At that value they are left out of the hash, so that old
results keep their names."""

_SPELLING: dict[str, Callable[[str], str]] = {
    "policy": policy_spec,
    "generator": lambda text: parse_generator(text).spec,
    "algorithm": algorithm_spec,
}


@lru_cache(maxsize=1024)
def _canonical(kind: str, text: str) -> str:
    """The canonical spelling of a policy, a generator or an algorithm; an error if it is unknown.

    >>> _canonical("policy", "FedEAS( beta=12.0, gamma=0.5 )")
    'fedeas(beta=12)'
    """
    return _SPELLING[kind](text)


def _drop(section: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        del section[name]


def load_config(path: str | Path | None, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a TOML file (or start from the defaults) and apply ``section.key=value`` overrides.

    A config that comes with the package is given by its name, such as ``digits``.

    >>> load_config(None, ["train.lr=0.05", "policy=fedeas(beta=2)"]).train.lr
    0.05
    """
    content: dict[str, Any] = {} if path is None else _read_toml(config_file(path))
    for override in overrides:
        _apply(content, override)
    try:
        return checked_config(content, "the command line")
    except InputError:
        if path is not None:
            checked_config(_read_toml(config_file(path)), str(path))  # if the file is wrong by itself, this names it
        raise


def config_file(path: str | Path) -> Path:
    """The file of a config: a path, or the name of one that comes with the package.

    >>> config_file("digits").name
    'digits.toml'
    """
    packaged = PACKAGED / f"{path}.toml"
    is_name = str(path) in packaged_configs()
    return packaged if is_name and not Path(path).is_file() else Path(path)


def packaged_configs() -> list[str]:
    """Names of the configs that come with the package.

    >>> packaged_configs()[:2]
    ['digits', 'paper/cifar10-k100']
    """
    return sorted(file.relative_to(PACKAGED).with_suffix("").as_posix() for file in PACKAGED.rglob("*.toml"))


def checked_config(content: Mapping[str, Any], source: str = "the config") -> RunConfig:
    """The config with this content; `source` is named in errors.

    >>> checked_config({"partition": {"clients": 7}}).partition.clients
    7
    """
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}: {_in_words(error)}") from None


def _read_toml(path: Path) -> dict[str, Any]:
    if not is_there(path):
        dataset = f", or data.dataset={path} for a dataset" if is_place(str(path)) else ""
        raise InputError(f"{path}: no such file; give a TOML file or one of {', '.join(packaged_configs())}{dataset}")
    checked_file(path, MAX_CONFIG_BYTES)
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except RecursionError:
        raise InputError(f"{path}: cannot be read as TOML (nested too deeply)") from None
    except (ValueError, OSError) as error:  # of TOML, of UTF-8, and of numbers with thousands of digits
        raise InputError(f"{path}: cannot be read as TOML ({printable(error)})") from None


def _apply(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"override {_shortened(override)} is not of the form key=value, such as train.lr=0.05")
    *sections, name = key.strip().split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise InputError(f"override {_shortened(override)}: {_shortened(section)} is not a section")
    content[name] = _value(text.strip(), is_text=_holds_text(sections, name))


def _value(text: str, is_text: bool) -> Any:
    """The text as a TOML value; the text itself if it is not valid TOML, or if text is wanted, such as label=2024."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, KeyError, RecursionError):
        return text
    return text if is_text and not isinstance(value, str) else value


def _holds_text(sections: Iterable[str], name: str) -> bool:
    """Whether the key's value is text."""
    model: Any = RunConfig
    for key in (*sections, name):
        field = getattr(model, "model_fields", {}).get(key)
        model = None if field is None else field.annotation
    return model in (str, str | None)


def _in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = _nearest_key(key)
        return f"unknown key {_shortened(key)}" + (f"; did you mean {near!r}?" if near else "")
    if first["type"] == "value_error":  # raised by this module, with a full message
        return str(first["ctx"]["error"])
    return f"{key}: {first['msg']}, not {_shortened(first['input'])}"


def _shortened(value: object) -> str:
    """A value as it was given, shortened if it is long."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits have no text
        return f"this {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


OTHER_NAMES = {
    "learning_rate": "train.lr", "local_epochs": "train.epochs", "num_rounds": "rounds.total",
    "num_clients": "partition.clients", "fraction_fit": "rounds.participation", "model_name": "model.name",
    "beta": "policy",
}  # fmt: skip
"""What other tools call our keys."""


def _nearest_key(unknown: str) -> str | None:
    """The key, with its section, whose name is most like this one."""
    section, _, name = unknown.rpartition(".")
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    keys: dict[str, list[str]] = {}
    for key in _all_keys():
        keys.setdefault(key.rpartition(".")[2], []).append(key)
    near = difflib.get_close_matches(name, keys, n=1)
    # If several sections have it: the one that was given, or else none at all.
    return min(keys[near[0]], key=lambda key: (key.rpartition(".")[0] != section, len(key))) if near else None


def _all_keys() -> Iterator[str]:
    """All keys, those of a section as ``section.key``."""
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.default, _Section):
            yield from (f"{name}.{key}" for key in type(field.default).model_fields)
        else:
            yield name
