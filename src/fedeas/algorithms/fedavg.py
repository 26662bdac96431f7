"""FedAvg, which all other algorithms extend: a client half and a server half of a few short functions."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any, ClassVar

from torch import Tensor, nn

from fedeas.algorithms.base import (
    MODEL,
    Arrays,
    ClientJob,
    Fleet,
    Reply,
    group,
    load_model,
    model_arrays,
    weighted_mean,
)
from fedeas.algorithms.local_sgd import Objective, local_sgd
from fedeas.config import hyperparameters
from fedeas.core.errors import InputError


class FedAvg(hyperparameters.FedAvg):
    """Federated averaging (McMahan et al., AISTATS 2017, algorithm 1).

    Each client k of round t starts from the global model, takes E epochs of SGD on its own data and sends its weights
    back; the server averages them,

        theta^{t+1} = sum_{k in S_t} w_k theta_k^{t+1},  w_k = N_k / sum_{j in S_t} N_j,

    with the real sizes N_k. BatchNorm's running statistics are averaged too; its step counters are not.
    """

    needs_setup: ClassVar[bool] = False
    """Whether there is an exchange before the first round."""
    differentiates_twice: ClassVar[bool] = False
    """Whether the loss contains gradients: training takes second derivatives.

    It takes none if the model has `outputs_and_derivatives`, a method that returns its outputs for a batch of images
    and their derivatives along given directions.
    """
    shares_counts: ClassVar[bool] = False
    """Whether clients reveal their label counts to the server."""
    stacks: ClassVar[bool] = True
    """Whether its loss also works for several clients stacked into one model, as `Objective` says.

    A class that overrides `objective` or `client_update` must set it.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Check what its methods return; if it changes the training and does not set `stacks`, do not stack it."""
        super().__init_subclass__(**options)
        own = dict(vars(cls))
        if "stacks" not in own and own.keys() & {"objective", "client_update"}:
            cls.stacks = False
        for name in own.keys() & ANSWERS.keys():
            if isfunction(own[name]):
                setattr(cls, name, checked(name, own[name]))

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The server's state before the first round: the initial weights."""
        return model_arrays(model)

    def setup_client(self, job: ClientJob) -> Reply | None:
        """The client's message before the first round, from its real samples, if the algorithm `needs_setup`."""
        return None

    def setup_server(self, server: Arrays, replies: Sequence[Reply]) -> Arrays:
        """The server's state after the set-up exchange."""
        return server

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """The server's message to the clients of a round: the global model."""
        return group(server, MODEL)

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """A client's part of a round, local SGD from the global model: its reply, and the state it keeps."""
        load_model(job.model, job.broadcast)
        result = local_sgd(job, self.objective(job))
        return Reply(job.client, job.data.num_real, model_arrays(job.model), result.metrics), {}

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """The server's state after a round: the mean of the models by N_k. Replies come in the order of client ids."""
        return {**server, **weighted_mean(replies, group(server, MODEL))}

    def objective(self, job: ClientJob) -> Objective:
        """The objective that a client minimises."""
        return Objective()


def _is_tensors(answer: object) -> bool:
    return isinstance(answer, Mapping) and all(isinstance(value, Tensor) for value in answer.values())


ANSWERS: dict[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("init", "setup_server", "broadcast", "server_update"), ("a dictionary of tensors", _is_tensors)),
    "setup_client": ("a Reply or None", lambda answer: answer is None or isinstance(answer, Reply)),
    "objective": ("an Objective", lambda answer: isinstance(answer, Objective)),
    "client_update": (
        "a Reply and the client's state (a dictionary of tensors)",
        lambda answer: (
            isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Reply) and _is_tensors(answer[1])
        ),
    ),
}
"""For each method, a description of its answer and the test of it: users write their own methods."""


def checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of this name with a check of its answer after each call."""
    wanted, fits = ANSWERS[name]

    @wraps(method)
    def call(algorithm: Any, *given: Any, **named: Any) -> Any:
        answer = method(algorithm, *given, **named)
        if not fits(answer):
            raise InputError(f"{algorithm.spec}: {name} must return {wanted}, not {_types_in(answer)}")
        return answer

    return call


def _types_in(answer: object) -> str:
    """The type of an answer; of a tuple, the types in it; of a dictionary, those that are no tensors.

    >>> _types_in(None), _types_in(({"x": 1}, {}))
    ('NoneType', "({'x': int}, {})")
    """
    if isinstance(answer, tuple | list):
        return f"({', '.join(map(_types_in, answer))})"
    if isinstance(answer, Mapping):
        wrong = [f"{name!r}: {_types_in(value)}" for name, value in answer.items() if not isinstance(value, Tensor)]
        return f"{{{', '.join(wrong)}}}"
    return type(answer).__name__
