"""Class-conditional diffusion on diffusers' UNet2DModel and schedulers: presets, training, weights, sampling."""
