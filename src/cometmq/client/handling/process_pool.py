"""Handlers in processes of their own, for work that one interpreter cannot do in parallel.

Owns the processes, the pipe to each, and their results; knows nothing of queues, order and
retries: to a consumer it looks like a plain handler that is called in threads, one thread per
process. Invariants: a process has at most one batch, so nothing waits in pipes; a process that dies
makes its batch fail, and the next batch gets a new one; processes end when this one does.
Processes are spawned: the handler must be importable, and a script needs the usual
`if __name__ == "__main__":`. SIGINT and SIGTERM, which often reach a whole group of processes, are
left to the parent: a batch in hand is finished, or the parent ends the process.
Java: nothing alike
"""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import time
import traceback
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from cometmq.errors import ClientError
from cometmq.model.results import ConsumeStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from cometmq.client.handling.handler_call import SyncHandler
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

_READY_S = 60.0
_END_S = 2.0
_ENDED_AT_ONCE = (
    "it ended at once; is the script's own work inside 'if __name__ == \"__main__\":', and can the "
    "handler be imported?"
)
_DONE, _FAILED, _READY = "done", "failed", "ready"


class WorkerDied(ClientError):
    """A process ended while it had messages: they come again."""


class HandlerFailed(Exception):
    """An error of a handler that cannot be sent from one process to another, as text."""


class RemoteTraceback(Exception):
    """Where an error was raised in a process, as the cause of the error here."""


class ProcessPool:
    """The processes of one consumer. `start` and `close` block; calls come from many threads."""

    def __init__(self, count: int, handlers: dict[str, SyncHandler]) -> None:
        """Take the handlers by topic. Raises ClientError when one cannot be sent to a process."""
        self._context = multiprocessing.get_context("spawn")
        self._count = count
        self._handlers = _pickled(handlers)
        self._idle: SimpleQueue[_WorkerProcess | None] = SimpleQueue()
        self._all: set[_WorkerProcess] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start all processes and wait until they are ready. Raises ClientError if one is not."""
        workers = [self._spawn() for _ in range(self._count)]
        try:
            for worker in workers:
                worker.wait_until_ready()
        except ClientError:
            self.close()
            raise
        for worker in workers:
            self._idle.put(worker)

    def handler_of(self, topic: str) -> SyncHandler:
        """Return the handler to call here: it waits for a free process, then for its result."""

        def call(messages: Sequence[MessageExt]) -> ConsumeStatus | None:
            return self._call(topic, messages)

        return call

    def close(self) -> None:
        """End the processes; those that do not end in 2 s are killed."""
        self._is_closed = True
        with suppress(Empty):
            while True:
                if (worker := self._idle.get_nowait()) is not None:
                    worker.connection.close()  # which ends it
        deadline = time.monotonic() + _END_S  # of all together: a stop has a limit
        for worker in list(self._all):
            worker.end(max(0.0, deadline - time.monotonic()))
        self._all.clear()
        for _ in range(self._count):
            self._idle.put(None)  # wakes whoever waits for a process

    def _call(self, topic: str, messages: Sequence[MessageExt]) -> ConsumeStatus | None:
        worker = self._idle.get()
        try:
            if worker is None or not worker.process.is_alive():
                self._forget(worker)
                worker = None
                worker = self._start_ready()
            kind, value = worker.call((topic, list(messages)))
        except (EOFError, OSError) as error:
            self._forget(worker)
            worker = None
            raise WorkerDied(f"a worker process died with messages of {topic}") from error
        finally:
            self._idle.put(worker)
        if kind == _DONE:
            return cast("ConsumeStatus | None", value)
        raised, where = value
        raise raised from RemoteTraceback(where)

    def _forget(self, worker: _WorkerProcess | None) -> None:
        """Forget a worker that died; the next call starts another one in its place."""
        if worker is not None:
            self._all.discard(worker)
            worker.connection.close()
            worker.end()
            if not self._is_closed:
                log.warning("worker process %s ended with %s", worker.pid, worker.exit_code)

    def _start_ready(self) -> _WorkerProcess:
        if self._is_closed:
            raise EOFError
        fresh = self._spawn()
        try:
            fresh.wait_until_ready()
        except ClientError as error:
            self._all.discard(fresh)
            raise EOFError(str(error)) from error
        return fresh

    def _spawn(self) -> _WorkerProcess:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve, args=(theirs, self._handlers), name="cometmq-worker", daemon=True
        )
        process.start()
        theirs.close()
        worker = _WorkerProcess(process, ours)
        self._all.add(worker)
        return worker


class _WorkerProcess:
    """One process and the pipe to it. One thread at a time has it."""

    def __init__(self, process: Any, connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.pid: int = process.pid
        self.exit_code: int | None = None

    def wait_until_ready(self) -> None:
        """Wait until it reports that it is ready. Raises ClientError when it does not."""
        try:
            is_there = self.connection.poll(_READY_S)
            kind, value = self.connection.recv() if is_there else (_FAILED, "it reported nothing")
        except (EOFError, OSError):
            kind, value = _FAILED, _ENDED_AT_ONCE
        if kind != _READY:
            self.end()
            raise ClientError(f"a worker process did not start: {value}")

    def call(self, request: object) -> Any:
        """Send a request and wait for the result. Raises EOFError or OSError when it dies."""
        self.connection.send(request)
        return self.connection.recv()

    def end(self, timeout_s: float = _END_S) -> None:
        """Wait for the end, then enforce it."""
        self.process.join(timeout_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_END_S)
        self.exit_code = self.process.exitcode


def _pickled(handlers: dict[str, SyncHandler]) -> bytes:
    try:
        return pickle.dumps(handlers)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ClientError(
            f"a handler cannot be sent to a process: {error}; with workers='process' it must be a "
            "function of a module, or an object that can be pickled"
        ) from error


def _serve(connection: Connection, pickled: bytes) -> None:
    """Run handlers until the pipe is closed (in a process of its own)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent stops us when it is done
    try:
        handlers: dict[str, Callable[[object], object]] = pickle.loads(pickled)
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        connection.send((_FAILED, f"the handler cannot be imported there: {error}"))
        return
    connection.send((_READY, None))
    try:
        while True:
            topic, messages = connection.recv()
            connection.send(_answer(handlers[topic], messages))
    except (EOFError, OSError):
        return  # the parent has closed the pipe, or is gone


def _answer(handler: Callable[[object], object], messages: object) -> tuple[str, object]:
    try:
        verdict = handler(messages)
    except BaseException as error:  # noqa: BLE001 - it goes back to the process that asked
        return _FAILED, (_portable(error), traceback.format_exc())
    if verdict is None or isinstance(verdict, ConsumeStatus):
        return _DONE, verdict
    return _FAILED, (HandlerFailed(f"the handler returned {type(verdict).__name__}"), "")


def _portable(error: BaseException) -> BaseException:
    """The error, if it arrives whole on the other side; else its text."""
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - the error is a user's, and so is what it does here
        again = None
    if type(again) is type(error):
        return error
    return HandlerFailed(f"{type(error).__name__}: {error}")
