"""Hot. Sends on the caller's own thread: it writes its frame and reads the response itself.

One message a frame, or a list.

Owns the idle connections of each broker and the round-robin of each thread; refuses what the fast
path refuses (`send_fast_path`), and messages with a sharding key, whose order the loop keeps.
Invariants: a connection belongs to one thread while it sends; at most `THREADS_MAX` are open to
a broker. A thread that gets no connection sends by the loop thread's loop, and so does every thread
after an error. When more than `THREADS_MAX` threads send at once, all of them use the connections
of the loop (`client/blocking/joined_send`).
Java: none
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cometmq.client.producer.send_fast_path import result_of, results_of
from cometmq.client.producer.send_statistics import SendCounts
from cometmq.errors import CometError
from cometmq.model.message import Message
from cometmq.net.send_socket import SendSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cometmq.client.producer.retrying_sender import FailedAttempt
    from cometmq.client.producer.send_fast_path import QueueTarget, SendFastPath
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.results import SendResult
    from cometmq.wire.command import Command
    from cometmq.wire.templates.send_response import SendAnswer

R = TypeVar("R")
THREADS_MAX = 12
"""Threads that send at once by themselves. Measured with a broker on the same two cores: 16 threads
take 0.9 of the CPU a message when they are joined on the loop, 64 a half, and 4 a quarter more.
"""
IDLE_S = 30.0
"""A connection that was idle for longer is closed: brokers close it after 120 s."""


class FailedSend(NamedTuple):
    """A send whose first attempt failed; the slow path goes on from here."""

    msg_id: str
    born_ms: int
    attempt: FailedAttempt


class FailedBatch(NamedTuple):
    """A batch whose first attempt failed, likewise."""

    messages: list[Message]
    ids: list[str]
    born_ms: int
    attempt: FailedAttempt


class _Broker:
    """The connections to one address: the idle ones, and the number of all."""

    __slots__ = ("closed", "count", "idle", "name", "open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.idle: list[SendSocket] = []
        self.count = 0
        self.open: dict[SendSocket, SendCounts] = {}
        """What each connection has counted: one thread at a time adds to it."""
        self.closed = SendCounts()
        """What those that were closed had counted."""


class ThreadSender:
    """Sends for one started producer from any thread."""

    def __init__(self, session: ClientSession, fast_path: SendFastPath, first: int) -> None:
        self._session = session
        self._fast_path = fast_path
        self._brokers: dict[str, _Broker] = {}
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._first = first
        self.inside: set[int] = set()
        """The threads that send now, by whatever way; callers add and take out themselves."""
        self._is_closed = (
            session.options.tls is not None
        )  # with TLS all sends use the loop thread's connections

    @property
    def is_crowded(self) -> bool:
        """Whether so many threads send that they are better joined; always with TLS."""
        return self._is_closed or len(self.inside) > THREADS_MAX

    def send(self, message: Message, timeout_s: float) -> SendResult | FailedSend | None:
        """Send on this thread. None: use the slow path; FailedSend: the first attempt failed."""
        if type(message) is not Message or message.sharding_key is not None:
            return None
        begun = time.monotonic()
        chosen = self._fast_path.choose(message, self._next_turn())
        if chosen is None:
            return None
        target, tail = chosen
        born_ms = self._session.clock.now_ms()
        msg_id = self._session.uniq_keys.next_key(born_ms)
        key, body, frame = msg_id.encode(), message.body, target.form.frame
        found = self._exchange(
            target,
            (begun, timeout_s),
            lambda opaque: frame(opaque, born_ms, key, tail, body),
            lambda answer: result_of(target, target.addr, msg_id, answer),
        )
        if isinstance(found, CometError):
            return FailedSend(msg_id, born_ms, (found, target.queue))
        return found

    def send_batch(
        self, messages: list[Message], timeout_s: float
    ) -> list[SendResult] | FailedBatch | None:
        """Send a list in one frame on this thread; otherwise like `send`."""
        begun = time.monotonic()
        batch = self._fast_path.batch_of(messages)
        if batch is None:
            return None
        target = self._fast_path.target_for(batch, self._next_turn())
        if target is None:
            return None
        ids, born_ms, fill = self._fast_path.batch_frame(batch, target)
        found = self._exchange(
            target,
            (begun, timeout_s),
            lambda opaque: b"".join(fill(opaque)),
            lambda answer: results_of(target, ids, answer),
        )
        if isinstance(found, CometError):
            return FailedBatch(batch.messages, ids, born_ms, (found, target.queue))
        return found

    def close(self) -> None:
        """Close the idle connections; one in use is closed when its thread releases it."""
        with self._lock:
            self._is_closed = True
            for broker in self._brokers.values():
                while broker.idle:
                    broker.idle.pop().close()

    def abort(self) -> None:
        """After `close`: end the sends that still wait for an answer."""
        assert self._is_closed, "new sends could begin"
        with self._lock:
            for broker in self._brokers.values():
                for connection in broker.open:
                    connection.abort()

    def counts(self) -> Iterator[tuple[str, SendCounts]]:
        """What was counted, by broker name."""
        with self._lock:
            found = [
                (broker.name, each)
                for broker in self._brokers.values()
                for each in (broker.closed, *broker.open.values())
            ]
        return iter(found)

    def in_flight(self, addr: str) -> int:
        """How many threads wait for an answer of a broker now."""
        broker = self._brokers.get(addr)
        return max(broker.count - len(broker.idle), 0) if broker else 0

    def _exchange(
        self,
        target: QueueTarget,
        time_left: tuple[float, float],
        frame: Callable[[int], bytes],
        read: Callable[[SendAnswer | Command], R],
    ) -> R | CometError | None:
        """Write the frame made for an opaque, and read its answer, over a connection of our own.

        Returns what `read` makes of it, or the error; None when there is no connection.
        `time_left` is when the call began (monotonic) and how long it may take.
        """
        begun, timeout_s = time_left
        if not target.addr:
            target.addr = self._session.routes.find_master_addr(target.queue.broker_name) or ""
        addr = target.addr
        broker = self._brokers.get(addr) or self._brokers.setdefault(
            addr, _Broker(target.queue.broker_name)
        )
        connection = self._acquire(broker, addr, timeout_s)
        if connection is None:
            return None
        if not connection.used_at:  # a new one: connecting took some of the time
            timeout_s = max(timeout_s - (time.monotonic() - begun), 0.001)
        is_intact = False
        counts = broker.open[connection]
        try:
            opaque = connection.next_opaque()
            answer = connection.exchange(opaque, frame(opaque), timeout_s)
            is_intact = True
            found = read(answer)
            counts.ok += 1
            counts.spent_s += time.monotonic() - begun
            return found
        except CometError as error:
            counts.failed += 1
            return error
        finally:
            self._release(broker, connection, is_intact=is_intact)

    def _next_turn(self) -> int:
        turn: int | None = getattr(self._threads, "turn", None)
        if turn is None:
            with self._lock:  # every thread begins at a different queue
                self._first += 1
                turn = self._first
        self._threads.turn = turn + 1
        return turn

    def _acquire(self, broker: _Broker, addr: str, timeout_s: float) -> SendSocket | None:
        """An unused connection; None at the limit, or when none can be made."""
        while True:
            try:
                connection = broker.idle.pop()
            except IndexError:
                break
            if time.monotonic() - connection.used_at < IDLE_S:
                return connection
            self._drop(broker, connection)
        with self._lock:
            if not addr or self._is_closed or broker.count >= THREADS_MAX:
                return None
            broker.count += 1
        made = None
        try:
            made = SendSocket(addr, min(timeout_s, self._session.options.connect_timeout_s))
        except CometError:
            return None
        finally:
            with self._lock:
                if made is None:
                    broker.count -= 1
                else:
                    broker.open[made] = SendCounts()
        if self._is_closed:  # closed meanwhile: nobody would end a wait on this one
            self._drop(broker, made)
            return None
        return made

    def _release(self, broker: _Broker, connection: SendSocket, *, is_intact: bool) -> None:
        if is_intact and not self._is_closed:
            connection.used_at = time.monotonic()
            broker.idle.append(connection)
            if self._is_closed:  # closed since the check above: nobody else closes this one
                self.close()
        else:
            self._drop(broker, connection)

    def _drop(self, broker: _Broker, connection: SendSocket) -> None:
        connection.close()
        with self._lock:
            broker.count -= 1
            if (counts := broker.open.pop(connection, None)) is not None:
                broker.closed.add(counts)
