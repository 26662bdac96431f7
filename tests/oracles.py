"""Reference results from first principles, for tests to compare with."""

import pytest
import torch
from torch.nn import functional


def assert_gradients_match(loss, parameters, step=1e-6, places=7):
    """The gradients of `loss()` equal central differences at some places of each (double-precision) parameter."""
    loss().backward()
    for parameter in parameters:
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for place in range(0, flat.numel(), max(1, flat.numel() // places)):
            values = []
            for sign in (1, -1):
                flat[place] += sign * step
                values.append(loss().item())
                flat[place] -= sign * step
            slope = (values[0] - values[1]) / (2 * step)
            assert gradient[place].item() == pytest.approx(slope, rel=1e-4, abs=1e-8)


def local_loss(algorithm, job):
    """What a client minimises, as a function of model, normalised images and labels."""
    objective = algorithm.objective(job)
    return lambda model, images, labels: objective.loss(model, objective.batch(images, labels), objective.shared)


def norm_of_both(x, weight, bias, running, momentum, eps, tickets, shortcut, relu):
    """What the GPU kernel computes, in torch's functions: values in the first half, derivatives in the second."""
    values, along = x.chunk(2)

    def mean(each):
        return each.mean(dim=(0, 2, 3), keepdim=True)

    away = values - mean(values)
    inverse = (mean(away**2) + eps).rsqrt()
    z, scale = away * inverse, weight[:, None, None]
    value, slope = scale * z + bias[:, None, None], scale * inverse * (along - mean(along) - z * mean(z * along))
    if shortcut is not None:
        value, slope = (each + other for each, other in zip((value, slope), shortcut.chunk(2), strict=True))
    if relu:
        value, slope = functional.relu(value), slope * (value > 0)
    return torch.cat([value, slope]).contiguous(memory_format=torch.channels_last)
