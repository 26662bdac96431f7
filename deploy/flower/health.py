"""Ask a SuperLink or a node whether it is up, at its health address."""

from __future__ import annotations

import time

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from fedeas.core.errors import RunError

PATIENCE = 5.0
"""Seconds to wait for an answer."""

PAUSE = 0.5
"""Seconds between two questions."""


def await_health(address: str, patience: float) -> None:
    """Ask until the process serves; after `patience` seconds raise RunError."""
    end = time.monotonic() + patience
    while True:
        try:
            check_health(address)
        except RunError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)
        else:
            return


def check_health(address: str) -> None:
    """Ask at `address`, as host:port; raise RunError unless the process there says that it serves."""
    # A proxy is never meant: health addresses are on the same machine.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=PATIENCE)
        except grpc.RpcError as error:
            raise RunError(f"{address}: no answer ({error.code().name.lower()}); look at the service's log") from None
    if answer.status != HealthCheckResponse.SERVING:
        raise RunError(f"{address}: not serving; look at the service's log")
