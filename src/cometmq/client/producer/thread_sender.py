"""Hot. The blocking producer's own way: the calling thread writes its frame and reads the answer.

Owns the idle connections of each broker and the turn of each thread; refuses what the short way
refuses (`quick`), and messages with a sharding key, whose order the loop keeps. Invariant: a
connection belongs to one thread while it sends; at most `CONNECTIONS_MAX` are open to a broker,
and whoever finds none goes the long way over the portal, as everybody does after an error.
Java: none
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.producer.send_fast_path import result_of
from cometmq.errors import CometError
from cometmq.model.message import Message
from cometmq.net.send_socket import SendSocket

if TYPE_CHECKING:
    from cometmq.client.producer.retrying_sender import Failed
    from cometmq.client.producer.send_fast_path import Quick
    from cometmq.client.session.client_session import Core
    from cometmq.model.results import SendResult

CONNECTIONS_MAX = 128
"""Connections to one broker; more threads than that share the portal's."""
IDLE_S = 30.0
"""A connection that was idle for longer is not trusted again: brokers hang up after 120 s."""


class Unsent(NamedTuple):
    """What is known of a send that failed; the long way goes on from there."""

    msg_id: str
    born_ms: int
    failed: Failed


class _Broker:
    """The connections to one address: those at rest, and how many there are."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.idle: list[SendSocket] = []
        self.count = 0


class Direct:
    """Sends for one started producer from any thread."""

    def __init__(self, core: Core, quick: Quick, first: int) -> None:
        self._core, self._quick = core, quick
        self._brokers: dict[str, _Broker] = {}
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._first = first
        self._is_closed = core.options.tls is not None  # the portal's connections have it

    def send(self, message: Message, timeout_s: float) -> SendResult | Unsent | None:
        """Send on this thread. None: it takes the long way; Unsent: an attempt failed."""
        if type(message) is not Message or message.sharding_key is not None:
            return None
        begun = time.monotonic()
        chosen = self._quick.choose(message, self._next_turn())
        if chosen is None:
            return None
        place, tail = chosen
        if not place.addr:
            place.addr = self._core.routes.find_master(place.queue.broker_name) or ""
        addr = place.addr
        broker = self._brokers.get(addr) or self._brokers.setdefault(addr, _Broker())
        connection = self._take(broker, addr, timeout_s)
        if connection is None:
            return None
        born_ms = self._core.clock.now_ms()
        msg_id = self._core.uniq_keys.take(born_ms)
        opaque = connection.next_opaque()
        frame = place.form.frame(opaque, born_ms, msg_id.encode(), tail, message.body)
        if not connection.used_at:  # to connect took some of the time
            timeout_s = max(timeout_s - (time.monotonic() - begun), 0.001)
        is_whole = False
        try:
            answer = connection.exchange(opaque, frame, timeout_s)
            is_whole = True
            return result_of(place, addr, msg_id, answer)
        except CometError as error:
            return Unsent(msg_id, born_ms, (error, place.queue))
        finally:
            self._give_back(broker, connection, is_whole=is_whole)

    def close(self) -> None:
        """Close what is at rest; what is in use is closed when it is given back."""
        with self._lock:
            self._is_closed = True
            for broker in self._brokers.values():
                while broker.idle:
                    broker.idle.pop().close()

    def _next_turn(self) -> int:
        turn: int | None = getattr(self._threads, "turn", None)
        if turn is None:
            with self._lock:  # each thread begins at another queue
                self._first += 1
                turn = self._first
        self._threads.turn = turn + 1
        return turn

    def _take(self, broker: _Broker, addr: str, timeout_s: float) -> SendSocket | None:
        """A connection that nobody uses; None when there are enough, or none can be made."""
        while True:
            try:
                connection = broker.idle.pop()
            except IndexError:
                break
            if time.monotonic() - connection.used_at < IDLE_S:
                return connection
            self._drop(broker, connection)
        with self._lock:
            if not addr or self._is_closed or broker.count >= CONNECTIONS_MAX:
                return None
            broker.count += 1
        made = None
        try:
            made = SendSocket(addr, min(timeout_s, self._core.options.connect_timeout_s))
        except CometError:
            return None
        finally:
            if made is None:
                with self._lock:
                    broker.count -= 1
        return made

    def _give_back(self, broker: _Broker, connection: SendSocket, *, is_whole: bool) -> None:
        if is_whole and not self._is_closed:
            connection.used_at = time.monotonic()
            broker.idle.append(connection)
            if self._is_closed:  # since we looked: nobody else closes it
                self.close()
        else:
            self._drop(broker, connection)

    def _drop(self, broker: _Broker, connection: SendSocket) -> None:
        connection.close()
        with self._lock:
            broker.count -= 1
