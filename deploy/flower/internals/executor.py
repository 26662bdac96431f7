"""The long-lived process that handles a node's messages.

Flower starts a new interpreter for each message, which imports torch again. Here torch and the app are imported once,
and each message is handled in a fork of that process. The parent talks to the node: it fetches the message, sends
heartbeats, and answers at once for a child that dies or takes too long; the node alone would need a minute for it.

A node runs one app, from its own installation: a run that brings another one along is refused, and nothing that a run
brings along is unpacked or imported.

The parent has one thread and computes nothing, so that forking is safe. A preloaded module must not start threads and
must not use the GPU. numpy's and torch's global generators have the same state in each child: use seeds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from logging import ERROR

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from deploy.flower.app import Bundle, check_same_app
from fedeas.core.errors import InputError
from fedeas.flower.backoff import Pace

POLL, LONGEST_POLL = 0.05, 0.5
"""Shortest and longest pause between two questions for a task, in seconds."""

SECRET_METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})  # later requests carry the task's own token


@dataclass(frozen=True)
class AppTask:
    """A task from the node: a message, the node's context, and the run with the app that it brings along."""

    message: Message
    context: Context
    run: Run
    fab: Fab

    def answered_by(self, app: Bundle) -> Message:
        """The answer of the node's app, if the run is one of this app."""
        check_same_app(app, f"{self.run.fab_id} {self.run.fab_version}", self.fab.content)
        return app.load_client()(message=self.message, context=self.context)

    def error(self, code: int, reason: str) -> Message:
        """The reply that says what went wrong."""
        return Message(Error(code=code, reason=reason), reply_to=self.message)


@dataclass(frozen=True)
class Executor:
    """Handles the tasks of the node at `runtime` with its one app, one at a time, as long as `parent` lives."""

    runtime: str
    app: Bundle
    secret: bytes
    limit: float | None
    parent: int

    def serve(self) -> None:
        """Handle tasks until the parent has ended."""
        pace = Pace(POLL, LONGEST_POLL)
        with self._connection() as node:
            while not self._orphaned():
                token = _next_token(node)
                if token:
                    self._work(token)
                    pace.reset()
                else:
                    pace.pause()

    def _connection(self) -> RuntimeHttpClient:
        signed = SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=SECRET_METHODS)
        version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        return RuntimeHttpClient.from_server_address(self.runtime, True, None, [version, signed])

    def _orphaned(self) -> bool:
        return os.getppid() != self.parent

    def _work(self, token: str) -> None:
        with _task_connection(self.runtime, token) as node:
            try:
                task = AppTask(*pull_task_input(node))
            except Exception as error:  # only this task has failed; the next one may succeed
                # Not reported: the node answers for a task that falls silent, but waits forever for one that failed.
                if not self._orphaned():
                    log(ERROR, "A message could not be fetched", exc_info=error)
                return
            child = _fork(lambda: _answer(self.runtime, token, self.app, task))
            reason = self._watch(child, node)
            if reason:
                _report(node, task, reason)

    def _watch(self, child: int, node: RuntimeHttpClient) -> str:
        """Wait for the child; return why it failed, or "" if there is nothing to report."""
        dropped = threading.Event()
        heartbeat = HeartbeatSender(_beat(node, dropped))
        heartbeat.start()
        began, reason = time.monotonic(), ""
        while not (status := os.waitpid(child, os.WNOHANG))[0]:
            if self.limit is not None and time.monotonic() - began > self.limit:
                reason = f"ran past the limit of {self.limit:g} s"
            if reason or dropped.is_set() or self._orphaned():
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        if heartbeat.is_running:
            heartbeat.stop()
        unwanted = dropped.is_set() or self._orphaned()
        return "" if unwanted else reason or _describe_exit(status[1])


def _next_token(node: RuntimeHttpClient) -> str | None:
    try:
        answer = node.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
    except httpx.TransportError:  # the node is still starting, or already gone
        return None
    return answer.token if answer.HasField("task") else None


def _task_connection(runtime: str, token: str) -> RuntimeHttpClient:
    interceptors: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
        RuntimeTokenHttpInterceptor(token),
    ]
    retry = make_simple_http_retry_invoker()
    retry.max_tries = 5  # a node that has ended will not accept this token again
    return RuntimeHttpClient.from_server_address(runtime, True, None, interceptors, retry_invoker=retry)


def _fork(work: Callable[[], None]) -> int:
    """Fork a child that does `work` and then ends; return its pid. The child never returns from here."""
    # Threads that fetched the message are about to end; wait for them before the fork.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(1)
    sys.stdout.flush()
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """End this process as soon as its parent has ended, even in the middle of a computation."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _answer(runtime: str, token: str, app: Bundle, task: AppTask) -> None:
    """Run the app in the child and send its answer, over the child's own connection."""
    status, details = SubStatus.COMPLETED, ""
    try:
        reply = task.answered_by(app)
    except InputError as error:
        log(ERROR, "Refused a message of run %d: %s", task.run.run_id, error)
        status, details = SubStatus.FAILED, str(error)
        reply = task.error(ErrorCode.INVALID_FAB, details)
    except Exception as error:
        log(ERROR, "The app raised an exception", exc_info=error)
        status, details = SubStatus.FAILED, f"{type(error)}:<'{error}'>"
        reply = task.error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details)
    with _task_connection(runtime, token) as node:
        push_message(node, reply, task.context)
        push_task_output(node, task.context, status, details)


def _report(node: RuntimeHttpClient, task: AppTask, reason: str) -> None:
    """Send an error for a child that failed."""
    log(ERROR, "The process of the app %s", reason)
    details = f"The process of the app {reason}."
    try:
        push_message(node, task.error(ErrorCode.CLIENT_APP_CRASHED, details), task.context)
        push_task_output(node, task.context, SubStatus.FAILED, details)
    except (httpx.HTTPError, RuntimeError) as error:
        log(ERROR, "The node did not take the report", exc_info=error)


def _beat(node: RuntimeHttpClient, dropped: threading.Event) -> Callable[[], bool]:
    """A function that sends a heartbeat; it sets `dropped` if the node no longer wants the task."""

    def beat() -> bool:
        try:
            wanted = node.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success
        except httpx.TransportError:
            return False
        except httpx.HTTPStatusError:
            wanted = False
        if not wanted:
            dropped.set()
        return True

    return beat


def _describe_exit(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else ""
