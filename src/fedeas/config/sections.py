"""The sections of a run's config: frozen, with their defaults; unknown keys and wrong types are errors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from fedeas.config.hyperparameters import parse_loss
from fedeas.core.errors import FedEASError
from fedeas.core.spec import MAX_SINGLE, PREFIX, read_call
from fedeas.data.names import checked_name

MAX_NUMBER = 2**63 - 1

Positive = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
Seed = Annotated[int, Field(ge=0, lt=2**62)]  # leaves room to add to it
Proportion = Annotated[float, Field(gt=0, le=1)]
NotNegativeSingle = Annotated[float, Field(ge=0, le=MAX_SINGLE, allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]


class Section(BaseModel):
    """What all sections have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class DataConfig(Section):
    """Which images are used, and which of them are for testing.

    Protocol ``clean``: the official training part goes to the clients, the official test part to the server.
    Protocol ``paper``: both are merged and split as the paper did; the clients' test parts are pooled at the server.
    In the clean protocol `held_out` images of the training part, the same number of each class, go to no client: they
    are for the generator ``held-out``.
    """

    dataset: Annotated[str, AfterValidator(checked_name)] = "digits"
    protocol: Literal["clean", "paper"] = "clean"
    held_out: Count = 0
    root: str | None = None


class PartitionConfig(Section):
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


class ModelConfig(Section):
    """The network; ``auto`` is the small CNN below 16 pixels and ResNet-18 from there on.

    Without a GPU, ``fedeas run`` and `fedeas.run` take the small CNN for images of every size.
    A model of one's own is ``python:module:name(...)``, or what an installed package registers.
    """

    name: str = "auto"
    stem: Literal["3x3", "imagenet"] = "3x3"
    norm: Literal["auto", "batch", "group", "none"] = "auto"
    weights: str = ""
    projection: Count = 0

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


class TrainConfig(Section):
    """Local training; the defaults are the paper's, and off where the paper says nothing.

    With `steps` above 0 a client takes that many steps in a round instead of `epochs` passes over its data, all of them
    with whole batches: every client and every policy then does the same work. (SCAFFOLD's option I also reads all data
    of a client once a round, which is not counted.) `loss` may correct for the client's label counts, e.g.
    ``balanced-softmax``. With `sampling` ``balanced`` a client sees each class that it holds equally often, samples of
    rare classes several times; the number of batches stays the same.
    """

    lr: Annotated[float, Field(gt=0, le=MAX_SINGLE, allow_inf_nan=False)] = 1e-3
    batch_size: Positive = 64
    epochs: Positive = 10
    steps: Count = 0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegativeSingle = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    augment: Literal["none", "flip", "crop-flip"] = "none"
    loss: str = "cross-entropy"
    sampling: Literal["shuffled", "balanced"] = "shuffled"

    @field_validator("loss")
    @classmethod
    def _in_one_spelling(cls, text: str, info: ValidationInfo) -> str:
        try:
            return parse_loss(text).spec
        except FedEASError:
            if info.context:  # a run of version 0.1
                return text
            raise


class RoundsConfig(Section):
    """How many rounds, how many clients in each, and what is measured."""

    total: Positive = 200
    participation: Proportion = 0.5
    eval_every: Positive = 1
    threshold: Proportion = 0.7
    gamma_hat: bool = True


class EngineConfig(Section):
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
    lanes: Count = 0
    processes: Count = 0
    compile: bool = False
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    min_share: Proportion = 0.5
    share_counts: bool = False


class ContentConfig(Section):
    """SHA-256 digests of the parts of a run: data, split, initial weights, and generator.

    ``policy``, ``algorithm`` and ``model`` are digests of a user's own code (``python:module:name``); they are empty if
    the built-in ones are used.

    A run fills them in when it starts. If a config gives a digest and the content differs, the run is refused.
    """

    data: Digest = ""
    partition: Digest = ""
    weights: Digest = ""
    generator: Digest = ""
    policy: Digest = ""
    algorithm: Digest = ""
    model: Digest = ""
