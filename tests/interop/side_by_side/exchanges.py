"""Fire requests at a name server and a broker, and keep what was asked and answered, as bytes.

Owns the sockets of a raw driver and the form of a recording. A value that comes out of an earlier
answer (a message id, a physical offset, a time) is a `Link`: a replay takes it from its own answer.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Self

from cometmq.wire.command import ONEWAY_FLAG, Command
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import message_id

JAVA, RELEASE_5_5_0 = 0, 513
TIMEOUT_S = 20.0


class Link(str):
    """A value of an extra field that was read from the answer to an earlier exchange."""

    __slots__ = ("key", "source", "what")
    source: str
    what: str
    key: str


def linked(exchange: Exchange, what: str, key: str = "") -> Link:
    """`what`: "ext" (the field `key`), "phy" (out of the id in `key`), "store_ms" of a record."""
    link = Link(_value(exchange, what, key))
    link.source, link.what, link.key = exchange.name, what, key
    return link


def _value(exchange: Exchange, what: str, key: str) -> str:
    answer = exchange.answer
    if answer is None or answer.code != 0:
        return "0"  # the difference shows where it was asked
    if what == "ext":
        return answer.ext[key]
    if what == "phy":
        return str(message_id.parse_offset_id(answer.ext[key].split(",")[0])[1])
    record = list(stored.iterate(answer.body))[int(key)]
    return str({"store_ms": record.store_ms, "phy_of": record.phy_offset}[what])


@dataclass
class Exchange:
    """One request and its answer, if there was one; of what a server pushed, that is `answer`."""

    name: str
    to: str
    on: str
    request: Command
    answer: Command | None = None
    links: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    kept: bool = True


class Connection:
    """One TCP connection; answers are matched by opaque, other requests are kept."""

    def __init__(self, addr: str) -> None:
        host, _, port = addr.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), 5)
        self._decoder = FrameDecoder()
        self._answers: dict[int, Command] = {}
        self.pushed: list[Command] = []
        self._opaque = 0

    def send(self, command: Command) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        self._socket.sendall(command.encode())
        return self._opaque

    def wait(self, opaque: int, timeout_s: float = TIMEOUT_S) -> Command:
        """The answer with that number; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while opaque not in self._answers:
            self._read(deadline - time.monotonic())
        return self._answers.pop(opaque)

    def wait_pushed(self, code: int, timeout_s: float = TIMEOUT_S) -> Command:
        """The next request with that code that the server sent; raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            for found in self.pushed:
                if found.code == code:
                    self.pushed.remove(found)
                    return found
            self._read(deadline - time.monotonic())

    def answer(self, request: Command, body: bytes = b"") -> None:
        """Answer a request of the server with success."""
        reply = Command(0, request.opaque, flag=1, language=JAVA, version=RELEASE_5_5_0, body=body)
        self._socket.sendall(reply.encode())

    def _read(self, timeout_s: float) -> None:
        if timeout_s <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(timeout_s)
        chunk = self._socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("closed by the server")
        for frame in self._decoder.feed(chunk):
            command = Command.decode(frame)
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.pushed.append(command)

    def close(self) -> None:
        self._socket.close()


class Talk:
    """Named connections to one pair of servers, and the list of what was said on them.

    `events` is the whole course of it, as it can be written to a file and gone through again.
    """

    def __init__(self, namesrv: str, broker: str) -> None:
        self.addrs = {"namesrv": namesrv, "broker": broker}
        self.exchanges: dict[str, Exchange] = {}
        self.events: list[dict[str, Any]] = []
        self._connections: dict[tuple[str, str], Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def connection(self, to: str = "broker", on: str = "main") -> Connection:
        """The connection of that name, opened when it is first asked for."""
        key = (to, on)
        if key not in self._connections:
            self._connections[key] = Connection(self.addrs[to])
        return self._connections[key]

    def hang_up(self, on: str, to: str = "broker") -> None:
        """Close one connection."""
        self.events.append({"do": "hang_up", "on": on, "to": to})
        if (to, on) in self._connections:
            self._connections.pop((to, on)).close()

    def pause(self, seconds: float, *, least: float = 0.2) -> None:
        """Give the servers' background work its time; a replay against ours gives it `least`."""
        self.events.append({"do": "pause", "seconds": seconds, "least": least})
        time.sleep(seconds)

    def ask(
        self,
        name: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | object = b"",
        *,
        to: str = "broker",
        on: str = "main",
        version: int = RELEASE_5_5_0,
        kept: bool = True,
    ) -> Exchange:
        """Ask and wait; an answer that does not come is kept as none."""
        exchange = self.post(name, code, ext, body, to=to, on=on, version=version, kept=kept)
        return self.collect(exchange)

    def post(
        self,
        name: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | object = b"",
        *,
        to: str = "broker",
        on: str = "main",
        flag: int = 0,
        version: int = RELEASE_5_5_0,
        kept: bool = True,
    ) -> Exchange:
        """Ask without waiting; `collect` waits. What is not `kept` is in no recording."""
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        plain = {key: str(value) for key, value in (ext or {}).items()}
        request = Command(code, 0, flag=flag, language=JAVA, version=version, ext=plain, body=data)
        links = {
            key: [value.source, value.what, value.key]
            for key, value in (ext or {}).items()
            if isinstance(value, Link)
        }
        return self.send(Exchange(name, to, on, request, links=links, kept=kept))

    def send(self, exchange: Exchange) -> Exchange:
        """Send what somebody made."""
        assert exchange.name not in self.exchanges, f"two exchanges named {exchange.name}"
        exchange.seconds = -time.monotonic()
        self.exchanges[exchange.name] = exchange
        self.events.append({"do": "send", "exchange": exchange})
        self.connection(exchange.to, exchange.on).send(exchange.request)
        return exchange

    def collect(self, exchange: Exchange, timeout_s: float = TIMEOUT_S) -> Exchange:
        """Wait for the answer to what was posted."""
        self.events.append({"do": "collect", "exchange": exchange})
        connection = self.connection(exchange.to, exchange.on)
        try:
            exchange.answer = connection.wait(exchange.request.opaque, timeout_s)
        except (TimeoutError, ConnectionError):
            self._connections.pop((exchange.to, exchange.on)).close()
        exchange.seconds += time.monotonic()
        return exchange

    def oneway(self, name: str, code: int, ext: dict[str, str], body: object = b"") -> None:
        """Tell without being answered."""
        self.post(name, code, ext, body, flag=ONEWAY_FLAG).seconds = 0.0

    def pushed(self, name: str, code: int, *, on: str, answer: bytes | None = None) -> None:
        """Wait for a request of the broker and keep it; answer it if there is an answer."""
        exchange = Exchange(name, "broker", on, Command(code, 0))
        self.exchanges[name] = exchange
        self.events.append({"do": "pushed", "exchange": exchange, "reply": answer})
        connection = self.connection("broker", on)
        try:
            push = exchange.answer = connection.wait_pushed(code, 5.0)
        except (TimeoutError, ConnectionError):
            return
        if answer is not None:
            connection.answer(push, answer)


def values(links: dict[str, list[str]], exchanges: dict[str, Exchange]) -> dict[str, str]:
    """The linked fields, out of the answers of this run."""
    return {
        field: _value(exchanges[source], what, key) for field, (source, what, key) in links.items()
    }
