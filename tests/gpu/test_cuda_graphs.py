"""A captured function gives what the function gives; on a GPU by replaying a graph."""

import pytest
import torch

from fedeas.gpu import WARM_UP, Captured, on_recordable_stream


def test_without_a_gpu_the_function_is_simply_called():
    seen = []

    def function(*arguments):
        seen.append(arguments)
        return arguments[0]

    captured = Captured(function, torch.device("cpu"))
    for number in range(WARM_UP + 3):  # before and after the place where a GPU would record
        first, second = torch.full((2,), number), torch.ones(1)
        assert captured(first, second) is first
        assert seen[-1] == (first, second)
    assert len(seen) == WARM_UP + 3
    assert captured.graph is None


def test_without_a_gpu_random_streams_advance_as_without_capture():
    streams = [torch.Generator().manual_seed(3) for _ in range(2)]
    captured = Captured(lambda: torch.rand(4, generator=streams[0]), torch.device("cpu"), (streams[0],))
    for _ in range(WARM_UP + 3):
        assert torch.equal(captured(), torch.rand(4, generator=streams[1]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
class TestOnAGpu:
    def test_a_replay_gives_what_the_function_gives(self):
        device = torch.device("cuda")
        matrix = torch.randn(64, 64, device=device)

        def function(rows, shift):
            return torch.relu(rows @ matrix) + shift[:, None]

        captured = Captured(function, device)
        for seed in range(WARM_UP + 5):
            stream = torch.Generator(device).manual_seed(seed)
            rows, shift = (torch.randn(size, device=device, generator=stream) for size in ((32, 64), (32,)))
            assert torch.equal(captured(rows, shift), function(rows, shift))
        assert captured.graph is not None

    def test_what_the_function_changes_is_changed_once_a_call(self):
        device = torch.device("cuda")
        total = torch.zeros((), device=device)
        captured = Captured(lambda step: total.add_(step).clone(), device)
        for calls in range(1, WARM_UP + 5):
            assert captured(torch.tensor(2.0, device=device)).item() == 2 * calls

    def test_random_streams_advance_as_without_capture(self):
        device = torch.device("cuda")
        streams = [torch.Generator(device).manual_seed(3) for _ in range(2)]
        captured = Captured(lambda: torch.rand(1000, generator=streams[0], device=device), device, (streams[0],))
        for _ in range(WARM_UP + 5):
            assert torch.equal(captured(), torch.rand(1000, generator=streams[1], device=device))

    def test_a_backward_pass_is_recorded_although_an_earlier_one_is_still_referred_to(self):
        device = torch.device("cuda")
        weight, updated = (torch.arange(3.0, device=device, requires_grad=True) for _ in range(2))

        def product():
            return OneSlope.apply(weight, updated)

        def slope():
            weight.grad = None
            product().sum().backward()
            return weight.grad.clone()

        with on_recordable_stream(device):
            earlier = product()
        captured = Captured(slope, device)
        for _ in range(WARM_UP + 3):
            assert captured().tolist() == [0.0, 1.0, 2.0]
        assert captured.graph is not None
        assert earlier.grad_fn is not None


class OneSlope(torch.autograd.Function):
    """A product whose second factor gets no gradient, as a weight that is updated during the backward pass."""

    @staticmethod
    def forward(ctx, first, second):
        ctx.save_for_backward(second)
        return first * second

    @staticmethod
    def backward(ctx, slope):
        return slope * ctx.saved_tensors[0], None
