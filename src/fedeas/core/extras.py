"""Packages that only some uses need, by the extra that installs them: ``pip install 'fedeas[train]'``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedeas.core.errors import InputError

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
    """If a package of an extra is missing inside this block, raise an `InputError` that says what to install.

    That is `extra`, which may bring others with it, or else the one of the package. An installed package that fails to
    import says itself what is wrong.

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
