"""Asks one address what it is, over a connection of its own, and says how that went.

Unlike a session it tries no other server, so that each address is judged alone.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from cometmq.errors import ConnectFailed, RemotingError, RemotingTimeout
from cometmq.model.cluster_facts import Reachability, ServerFacts
from cometmq.net.channel import connect
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection

    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header

_KINDS = {
    RequestCode.GET_BROKER_RUNTIME_INFO: "broker",
    RequestCode.GET_BROKER_CLUSTER_INFO: "name server",
}
"""The question that only a server of this kind answers."""


class ServerProbe:
    """Asks one address what it is, with a limit of time for each question. Use it on one loop."""

    def __init__(
        self,
        addr: str,
        timeout_s: float,
        sign: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`sign` signs each question; `tls` encrypts them."""
        self._sign = sign
        self._tls = tls
        self.addr = addr
        self._timeout_s = timeout_s
        self._channel: Channel | None = None

    async def identify(self, expected: RequestCode) -> tuple[ServerFacts, Command | None]:
        """Ask the question of the expected kind, and that of the other kind when it is refused.

        Returns what the server is and its answer to the expected question, None without one.
        """
        try:
            self._channel = await connect(
                self.addr, self._timeout_s, prepare=self._sign, tls=self._tls
            )
        except ConnectFailed as error:
            return self._facts(_why_not_connected(error), str(error)), None
        refusal, kinds = "", set[str]()
        for code in (expected, *(each for each in _KINDS if each is not expected)):
            try:
                answer = await self.ask(code)
            except RemotingTimeout as error:
                what = f"it takes connections but does not answer: {error}"
                return self._facts(Reachability.SILENT, what), None
            except RemotingError as error:
                what = f"what listens there does not speak RocketMQ's protocol: {error}"
                return self._facts(Reachability.OTHER_PROTOCOL, what), None
            is_answered = answer.code == ResponseCode.SUCCESS
            if is_answered:
                kinds.add(_KINDS[code])
            if code is expected and is_answered:
                return self._facts(Reachability.ANSWERS, kinds=kinds), answer
            refusal = refusal or f"code {answer.code}: {answer.remark}"
        return self._facts(Reachability.ANSWERS, refusal=refusal, kinds=kinds), None

    async def ask(self, code: RequestCode, header: Header | None = None) -> Command:
        """Send a request and return the response, whatever its code. Raises RemotingError."""
        assert self._channel is not None, "identify comes first"
        return await self._channel.call(request(code, 0, header), self._timeout_s)

    def close(self) -> None:
        """Close the connection, if there is one, without waiting for the end of TLS."""
        if self._channel is not None:
            self._channel.close()
            self._channel.abort()

    def _facts(
        self,
        reachability: Reachability,
        problem: str = "",
        *,
        refusal: str = "",
        kinds: Collection[str] = (),
    ) -> ServerFacts:
        return ServerFacts(
            addr=self.addr,
            reachability=reachability,
            problem=problem,
            refusal=refusal,
            is_broker="broker" in kinds,
            is_name_server="name server" in kinds,
        )


def _why_not_connected(error: ConnectFailed) -> Reachability:
    cause = error.__cause__
    if cause is None:
        return Reachability.BAD_ADDRESS
    if isinstance(cause, socket.gaierror | ValueError):
        return Reachability.UNRESOLVED
    refused = isinstance(cause, ConnectionRefusedError) or (
        f"[Errno {errno.ECONNREFUSED}]" in str(cause)  # a name with several addresses
    )
    return Reachability.REFUSED if refused else Reachability.UNREACHABLE
