"""Off-the-shelf text-to-image models as generators: each class is a prompt, and large images are scaled down.

This is the paper's test of another generator: SD-Turbo, one step, no guidance, 512 x 512 scaled to 32 x 32.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fedeas.config.generators import SdTurbo
from fedeas.core.arrays import IntArray
from fedeas.core.devices import chosen_device
from fedeas.core.errors import InputError, RunError, extra_for, log
from fedeas.generators.base import address_noise, noise_keys
from fedeas.generators.memory import chosen_precision, in_batches

FORMAT = "fedeas-text-1"  # version of the sampler; part of the fingerprint

SD_TURBO = "stabilityai/sd-turbo"
TEMPLATE = "a photo of a {}"
Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

LUMINANCE = (0.299, 0.587, 0.114)  # weights of red, green and blue in a grey image (ITU-R BT.601)

# Settings that say where a model comes from or how it is stored, not what it computes.
_PROVENANCE = {"architectures", "dtype", "torch_dtype", "transformers_version"}


@dataclass(eq=False)
class TextToImage:
    """Images of a diffusers text-to-image pipeline with a UNet, such as Stable Diffusion's and SDXL's.

    Latents come from the noise of the image's address, and the scheduler's noise from a generator that the address
    seeds. Batches are filled up to `batch_size` with the last address, so that the arithmetic does not depend on what
    else is requested. The fingerprint does not include `batch_size`, the device, the number of threads and the versions
    of libraries: they can change the order of a sum, and with it a pixel by one step of 256, but not what the image
    shows. So the law "same address, same bytes" holds as long as they stay the same. A batch that does not fit into
    memory is computed in halves, which counts as another `batch_size`.

    The prompt of a class is its name, with spaces for underscores, in the template. Images with one channel
    show the luminance. `guidance` of 1 or less is none; `size` is the height and width of the pipeline's own images.
    """

    pipeline: Any = field(repr=False)
    class_names: Sequence[str]
    shape: tuple[int, int, int]
    _: KW_ONLY
    template: str = TEMPLATE
    steps: int = 1
    guidance: float = 0.0
    size: int = 512
    batch_size: int = 16
    source: str = "text-to-image"

    def __post_init__(self) -> None:
        self.class_names = tuple(map(str, self.class_names))
        _check_prompts(self.template, self.class_names)
        missing = [part for part in ("unet", "vae", "scheduler") if getattr(self.pipeline, part, None) is None]
        if missing:
            kind = type(self.pipeline).__name__
            raise InputError(f"a {kind} has no {' and no '.join(missing)}; use a model such as {SD_TURBO}")
        if self.shape[0] not in (1, 3) or min(self.shape) < 1:
            raise InputError(f"images must have 1 or 3 channels and at least one pixel, not shape {self.shape}")
        SdTurbo(steps=self.steps, guidance=self.guidance, size=self.size)  # refuses what it cannot be
        self.pipeline.set_progress_bar_config(disable=True)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] = SD_TURBO,
        class_names: Sequence[str] = (),
        shape: tuple[int, int, int] = (3, 32, 32),
        *,
        device: str | torch.device = "auto",
        precision: Precision = "auto",
        **settings: Any,
    ) -> TextToImage:
        """A generator from a model's local folder or its name on the Hugging Face Hub; `settings` as for the class.

        Weights must be safetensors: pickled ones can run code as they load, and are refused. The device ``auto`` is
        CUDA if there is a GPU; the precision ``auto`` is fp16 on CUDA, else fp32.
        """
        _check_prompts(settings.get("template", TEMPLATE), tuple(class_names))  # before gigabytes are fetched
        place = chosen_device(str(device))
        dtype = PRECISIONS[chosen_precision(precision, place, get_args(Precision), on_gpu="fp16")]
        source = os.fspath(model)
        with extra_for("a text-to-image generator", "text"):
            import transformers  # noqa: F401  (without it diffusers gives stand-ins that fail later)
            from diffusers import AutoPipelineForText2Image
        on_the_hub = source.count("/") == 1 and not source.startswith((".", "~", "/"))  # as in owner/name
        if not on_the_hub and not Path(source).is_dir():
            raise InputError(f"{source}: no such folder")
        try:
            with warnings.catch_warnings():
                # Diffusers passes an argument that the Hub's client has removed; this cannot be changed here.
                warnings.filterwarnings("ignore", message="The `local_dir_use_symlinks` argument")
                pipeline = AutoPipelineForText2Image.from_pretrained(source, use_safetensors=True, dtype=dtype)
        except Exception as error:  # four libraries raise many types; a user needs one message
            origin: BaseException = error  # the first cause: an unreachable Hub at first looks like a missing file
            while (earlier := origin.__cause__ or origin.__context__) is not None:
                origin = earlier
            texts = [str(each).strip() or type(each).__name__ for each in (error, origin)]
            reason = ": ".join(dict.fromkeys(text.splitlines()[0].strip().rstrip(".") for text in texts))
            raise InputError(
                f"text-to-image model {source!r} cannot be loaded ({reason}); "
                "give a folder that holds it, with its weights as safetensors"
            ) from error
        return cls(pipeline.to(place), class_names, shape, source=source, **settings)

    @property
    def num_classes(self) -> int:
        """C, one for each name."""
        return len(self.class_names)

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each class."""
        return tuple(self.template.replace("{}", name.replace("_", " ")) for name in self.class_names)

    @property
    def precision(self) -> str:
        """Number format of the weights, such as ``fp32``."""
        dtype = self.pipeline.unet.dtype
        return next((name for name, known in PRECISIONS.items() if known == dtype), str(dtype))

    @property
    def description(self) -> str:
        """One line about the model and its settings."""
        _, height, width = self.shape
        return (
            f"{self.source}, {self.template!r}, {self.steps} step{'s' * (self.steps > 1)}, guidance {self.guidance:g}, "
            f"{self.size} x {self.size} to {height} x {width}, {self.precision}"
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights, configs, scheduler, prompts and settings; weights are read once, on first use."""
        settings = [self.prompts, self.shape, self.steps, float(self.guidance), self.size, self.precision]
        digest = hashlib.sha256(json.dumps([FORMAT, settings]).encode())
        for name, part in sorted(self.pipeline.components.items()):
            for piece in _content(part, self.prompts):
                digest.update(name.encode())
                digest.update(piece)
        return digest.hexdigest()

    def sample(self, labels: ArrayLike, index: ArrayLike) -> NDArray[np.uint8]:
        """The images of these addresses; each depends on its own address alone, not on the batch."""
        try:
            return in_batches(self, self._images, self._go_on_with, labels, index)
        except torch.OutOfMemoryError:
            side = f"{self.size} x {self.size}"
            raise RunError(f"{self.source}: memory does not hold one image at {side}; lower size") from None

    def _go_on_with(self, batch_size: int) -> None:
        self.batch_size = batch_size
        log.warning("%s: out of memory; from here on %d images at once", self.source, batch_size)

    def _images(self, labels: IntArray, index: IntArray) -> NDArray[np.uint8]:
        """One batch, padded to `batch_size`."""
        missing = (0, self.batch_size - labels.size)
        pictures = self._pictures(np.pad(labels, missing, "edge"), np.pad(index, missing, "edge"))
        if not torch.isfinite(pictures).all():
            raise RunError(f"{self.source} gave numbers that are not finite; {self.precision} may be too coarse for it")
        return to_bytes(pictures[: labels.size], self.shape)

    def _pictures(self, labels: IntArray, index: IntArray) -> torch.Tensor:
        """The pipeline's own images, float32 from 0 to 1, on the CPU."""
        unet, side = self.pipeline.unet, self.size // self.pipeline.vae_scale_factor
        shape = (unet.config.in_channels, side, side)
        noise = torch.from_numpy(address_noise(labels, index, math.prod(shape))).reshape(-1, *shape)
        answer = self.pipeline(
            prompt=[self.prompts[label] for label in labels],
            height=self.size,
            width=self.size,
            num_inference_steps=self.steps,
            guidance_scale=self.guidance,
            latents=noise.to(unet.device, unet.dtype),
            # For schedulers that add noise; on the CPU, so that every device gets the same. Torch uses 32 bits of a
            # seed. Two addresses that share them still start with different latents.
            generator=[torch.Generator().manual_seed(int(key)) for key in noise_keys(labels, index)],
            output_type="pt",
        )
        return torch.as_tensor(answer.images).float().cpu()


def to_bytes(pictures: torch.Tensor, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """RGB images from 0 to 1, (N, 3, height, width), scaled to a shape without aliasing and rounded once.

    >>> to_bytes(torch.ones(1, 3, 64, 64) / 5, (1, 2, 2)).tolist()
    [[[[51, 51], [51, 51]]]]
    """
    if shape[0] == 1:
        pictures = torch.tensordot(pictures, torch.tensor(LUMINANCE), dims=([1], [0])).unsqueeze(1)
    scaled = torch.nn.functional.interpolate(pictures, shape[1:], mode="bicubic", antialias=True)
    pixels: NDArray[np.uint8] = (scaled * 255).round().clamp(0, 255).to(torch.uint8).numpy()
    return pixels


def _check_prompts(template: str, class_names: Sequence[str]) -> None:
    if template.count("{}") != 1:
        raise InputError(f"template {template!r} must contain {{}} once, where the name of the class goes")
    if not class_names or not all(str(name).strip() for name in class_names):
        raise InputError(f"class names {list(class_names)}: give one for each class; the model is asked for them")


def _content(part: Any, prompts: Sequence[str]) -> Iterator[bytes]:
    """Everything in one component of a pipeline that the images depend on, as bytes to hash."""
    yield type(part).__name__.encode()
    if hasattr(part, "config"):
        # Without its origin; of transformers' configs only non-default values, since versions add defaults.
        config = part.config
        content = config.to_diff_dict() if hasattr(config, "to_diff_dict") else dict(config)
        kept = {key: value for key, value in content.items() if not key.startswith("_") and key not in _PROVENANCE}
        yield json.dumps(kept, sort_keys=True, default=str).encode()
    if isinstance(part, torch.nn.Module):
        for name, tensor in sorted(part.state_dict().items()):
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
            yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif hasattr(part, "batch_decode"):  # a tokenizer: its output for the prompts stands for its many files
        yield json.dumps(part(list(prompts))["input_ids"]).encode()
