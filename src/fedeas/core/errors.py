"""The log, and the errors that FedEAS raises on purpose: one line each, with the place and the remedy."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("fedeas")
"""The log of the whole package; whoever uses it decides what is shown."""


class FedEASError(Exception):
    """Base of all errors that FedEAS raises on purpose; the command line shows them without a traceback."""

    exit_code = 2


class InputError(FedEASError, ValueError):
    """Counts, labels or a file that cannot be used; `row`, counted from 0, is shown before the message, from 1 on."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.row = row

    def __str__(self) -> str:
        return self.message if self.row is None else f"row {self.row + 1:,}{self.message}"


class PolicyError(FedEASError, ValueError):
    """A hyperparameter out of range, or a budget that the policy cannot spend."""


class SpecError(FedEASError, ValueError):
    """A policy description such as ``fedeas(beta=12)`` that cannot be read."""


class StoppedError(FedEASError):
    """The user stopped the work (Ctrl-C). What is done is kept."""

    exit_code = 130


class RunError(FedEASError, RuntimeError):
    """A run had to stop after its start. Its records are kept, and it can resume from them."""

    exit_code = 3


def reason_of(error: object) -> str:
    """The first line of an error's message."""
    return str(getattr(error, "strerror", None) or str(error).strip().partition("\n")[0] or type(error).__name__)


PACKAGES = {
    "train": ("torch", "safetensors", "diffusers", "huggingface_hub", "torchmetrics", "sklearn", "PIL"),
    "text": ("transformers", "accelerate"),
    "flower": ("flwr", "ray"),
    "privacy": ("opacus",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
    "web": ("streamlit",),
}
"""What each extra brings; planning works without any of them."""


@contextmanager
def extra_for(use: str, extra: str | None = None) -> Iterator[None]:
    """If a package is missing inside this block, raise an `InputError` that names `extra` or else the package's own.

    >>> with extra_for("the planner"):
    ...     raise ModuleNotFoundError(name="streamlit.web")
    Traceback (most recent call last):
    fedeas.core.errors.InputError: the planner needs streamlit: pip install 'fedeas[web]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        own = next((extra for extra, packages in PACKAGES.items() if package in packages), None)
        if own is None:
            raise
        raise InputError(f"{use} needs {package}: pip install 'fedeas[{extra or own}]'") from None
