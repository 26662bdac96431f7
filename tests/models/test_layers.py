"""The layers of our models compute what torch's do."""

import pytest
import torch

from fedeas.models.layers import norm_layer, norm_relu


@pytest.mark.parametrize("kind", ["batch", "group", "none"])
def test_norm_relu_equals_norm_then_sum_then_relu(kind):
    stream = torch.Generator().manual_seed(0)
    x, shortcut = (torch.randn(4, 8, 3, 3, generator=stream) for _ in range(2))
    norm = norm_layer(kind, 8)
    assert torch.equal(norm_relu(norm, x.clone(), shortcut), torch.relu(norm(x) + shortcut))
    assert torch.equal(norm_relu(norm, x.clone()), torch.relu(norm(x)))
