"""Devices, CUDA graphs and kernels."""
