"""Initial weights from central training: a run with one client that holds all images, whose last model becomes a file.

One-client FedAvg is plain SGD, so resume, evaluation and recorded steps on a GPU work as in any run. Each epoch is a
round: the learning rate falls from round to round, and momentum starts from zero.
"""

import json
from collections.abc import Callable
from pathlib import Path

from fedeas.algorithms.base import MODEL, Arrays, as_group, members
from fedeas.config.run import RunConfig
from fedeas.config.sections import DataConfig, EngineConfig, ModelConfig, PartitionConfig, RoundsConfig, TrainConfig
from fedeas.core.devices import chosen_device, torch_precision
from fedeas.core.errors import InputError, RunError
from fedeas.core.files import PathLike, make_folder
from fedeas.core.provenance import Seen, data_digest
from fedeas.core.records import is_there
from fedeas.core.weight_files import (
    IMAGENET_STEM,
    PRETRAINED,
    SUFFIX,
    description,
    folder_for_new,
    name_of_dataset,
    write_tensors,
)
from fedeas.data.names import checked_name
from fedeas.federation.checkpoint import load_checkpoint
from fedeas.federation.engines.processes import BackendFor
from fedeas.federation.metrics import Evaluation
from fedeas.federation.parts import Parts
from fedeas.federation.run import OnStart, Pause, execute, identified
from fedeas.models.build import start_seen
from fedeas.models.networks import Stem
from fedeas.runs.store import REMEDY, Record, Run, RunStore

FORMAT = "fedeas-pretrained-1"
LABEL_LENGTH = 61

ENDING: dict[Stem, str] = {"3x3": PRETRAINED, "imagenet": IMAGENET_STEM}

# Usual settings for a ResNet on photographs of this size.
RECIPE = TrainConfig(
    lr=0.1, batch_size=128, epochs=1, momentum=0.9, weight_decay=5e-4, schedule="cosine", augment="crop-flip"
)


def pretraining_config(
    dataset: str = "cifar100",
    epochs: int = 30,
    seed: int = 0,
    device: str = "auto",
    root: str | None = None,
    stem: Stem = "3x3",
) -> RunConfig:
    """Central training as a run: one client with the official training part, in ``bf16`` on a GPU.

    >>> pretraining_config("digits", epochs=5, device="cpu").label
    'pretrain-digits'
    """
    checked_name(dataset)
    on_gpu = chosen_device(device).type == "cuda"
    return RunConfig(
        label=f"pretrain-{name_of_dataset(dataset)}{'' if stem == '3x3' else IMAGENET_STEM}"[:LABEL_LENGTH],
        seed=seed,
        data=DataConfig(dataset=dataset, root=root),
        partition=PartitionConfig(scheme="iid", clients=1),
        model=ModelConfig(stem=stem),
        train=RECIPE,
        rounds=RoundsConfig(total=epochs, participation=1.0, gamma_hat=False),
        engine=EngineConfig(device=device, precision="bf16" if on_gpu else "fp32"),
    )


def default_file(dataset: str, stem: Stem = "3x3") -> Path:
    """Where runs find the weights by the name ``DATASET-pretrained``, or ``DATASET-imagenet-stem`` for that stem.

    >>> default_file("cifar100", "imagenet").name
    'cifar100-imagenet-stem.safetensors'
    """
    return folder_for_new() / f"{name_of_dataset(dataset)}{ENDING[stem]}{SUFFIX}"


def pretrain(
    config: RunConfig,
    out: PathLike,
    store: RunStore,
    on_round: Callable[[Record], None] | None = None,
    pause: Pause | None = None,
    on_start: OnStart | None = None,
    backend_for: BackendFor | None = None,
) -> Record | None:
    """Train to the end, write the last model's weights to `out`, and return the file's description.

    If `pause` returns True after an epoch, training stops, nothing is written and None is returned; the next call
    resumes.

    An existing file is never replaced. If it holds the weights of this run, nothing is done.
    """
    path = Path(out)
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: weights are written as {SUFFIX} files; choose such a name")
    complete = identified(config)  # raises an error if the data are missing, before a folder is made
    if is_there(path):
        about = provenance(path)
        if about.get("run") != complete.fingerprint:
            raise InputError(f"{path}: other weights are there already; move them away, or choose another --out")
        return about
    make_folder(path.parent)
    run = execute(config, store, on_round, pause=pause, on_start=on_start, backend_for=backend_for)
    if not run.finished:
        return None
    config, tensors, device = run.config, halved(last_model(run), path), chosen_device(run.config.engine.device)
    with torch_precision("fp32", device):
        parts = Parts.of(config, device)
        data, classes = parts.data, parts.data.dataset.num_classes
        test = Evaluation.of(parts.model, data.test_images, data.test_labels, classes, parts.normalise)
        accuracy = test(parts.on_device(as_group(tensors, MODEL)))["accuracy"]
    digest, start = data_digest(data.images, data.labels), start_seen(config.model.weights)
    about = {
        "format": FORMAT,
        "dataset": config.data.dataset,
        "protocol": config.data.protocol,
        "seen": Seen.under(config.data.protocol, config.data.dataset, digest, start).record,
        "epochs": config.rounds.total,
        "accuracy": accuracy,
        "seed": config.seed,
        "precision": config.engine.precision,
        "machine": run.environment().get("machine"),
        "run": config.fingerprint,
    }
    write_tensors(path, tensors, {"fedeas": json.dumps(about)})
    return provenance(path)


def provenance(path: PathLike) -> Record:
    """The data and the run that the weights in a file come from; empty if `pretrain` has not written it."""
    about = description(path)
    return about if about.get("format") == FORMAT else {}


def last_model(run: Run) -> Arrays:
    """The tensors of the model after the last round, by name in its state dict."""
    return members(load_checkpoint(run.checkpoint, run.config.fingerprint, REMEDY).server, MODEL)


def halved(tensors: Arrays, place: Path) -> Arrays:
    """The tensors with floating-point numbers in half precision, which keeps the file small; integers unchanged."""
    kept = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in kept.items():
        if not tensor.isfinite().all():
            raise RunError(f"{place}: {name} has numbers that float16 cannot hold; train with another seed or rate")
    return kept
