"""What a handler of requests is, and what it may answer.

Owns the types only; `net/dispatcher` calls handlers and sends what they answer.
Java: NettyRequestProcessor, RemotingCommand as its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.wire.command import Command, encode_answer, response

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.wire.headers.base import Header


class Reply:
    """What a handler answers. A `durable` reply leaves once all that was put is safe.

    With `local_only` safe means on this machine; without, on its replicas too where there are any.
    """

    __slots__ = ("body", "code", "durable", "ext", "header", "local_only", "remark")

    def __init__(
        self,
        code: int = 0,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        durable: bool = False,
        local_only: bool = False,
    ) -> None:
        self.code = code
        self.header = header
        self.body = body
        self.remark = remark
        self.ext = ext
        self.durable = durable
        self.local_only = local_only

    def encode(self, opaque: int) -> bytes:
        """Return the whole frame that answers the request with this opaque."""
        header, remark, ext = self.header, self.remark, self.ext
        if header is None and remark is None and not ext:
            return encode_answer(opaque, self.code, self.body)
        return response(
            opaque, self.code, remark=remark, header=header, body=self.body, ext=ext
        ).encode()


class TwoPartFrame(NamedTuple):
    """A whole frame whose body may be large: its two parts are not joined here."""

    head: bytes
    body: bytes


class HeldMarker:
    """The type of HELD."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the name."""
        return "HELD"


HELD: Final = HeldMarker()
"""Returned by a handler that calls `answer_held` later, once, unless the connection closes."""

Answer = Reply | bytes | TwoPartFrame
"""A reply, or a whole frame made by the handler."""
HandlerResult = Answer | HeldMarker
Handler = Callable[[Command, "Connection"], HandlerResult | Awaitable[HandlerResult]]
