"""diffusers' UNet on a grid of patches instead of pixels: quick on a CPU, where large grids are slow."""

from typing import Any, Self

from diffusers import UNet2DModel
from diffusers.models.unets.unet_2d import UNet2DOutput
from torch import Tensor
from torch.nn import functional


class PatchUNet(UNet2DModel):  # type: ignore[misc]
    """A UNet whose channels are the pixels of a patch; images that do not fill the grid are continued at its edges."""

    patch: int = 1

    @classmethod
    def of(cls, patch: int, settings: dict[str, Any]) -> Self:
        """A network for patches of this many pixels along each side, with diffusers' settings of the grid."""
        network: Self = cls(**settings)
        network.patch = patch
        return network

    def forward(self, sample: Tensor, timestep: Tensor, class_labels: Tensor) -> UNet2DOutput:
        """The prediction for noisy images."""
        height, width = sample.shape[2:]
        predicted = super().forward(self._patches(sample), timestep, class_labels=class_labels).sample
        pixels = functional.pixel_shuffle(predicted, self.patch)
        return UNet2DOutput(sample=pixels[:, :, :height, :width])

    def _patches(self, images: Tensor) -> Tensor:
        rows, columns = (side * self.patch for side in self.config.sample_size)
        room = (0, columns - images.shape[3], 0, rows - images.shape[2])
        return functional.pixel_unshuffle(functional.pad(images, room, mode="replicate"), self.patch)
