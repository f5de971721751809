"""Hot. One request or response as a value: what both headers carry, plus the body.

Refuses to know what codes and fields mean, and keeps no request state: who waits for an answer is
`net`'s business. Reads JSON and binary headers, always writes JSON (every client reads that).
Java: RemotingCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire import header_json, header_rocketmq
from cometmq.wire.codes import LanguageCode
from cometmq.wire.frame import JSON, ROCKETMQ, Frame, encode_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.wire.headers.base import Header

VERSION = 479
"""What we say we are: protocol level of release 5.3.3 (Java: MQVersion ordinals)."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

_LANGUAGE = int(LanguageCode.PYTHON)
_BARE = b'{"code":%d,"flag":1,"language":"PYTHON","opaque":%d,%b'
_TAIL = b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class Command:
    """A request or a response. Mutable, owned by whoever made it; `ext` is never shared."""

    __slots__ = ("body", "code", "ext", "flag", "language", "opaque", "remark", "version")

    def __init__(
        self,
        code: int,
        opaque: int,
        *,
        flag: int = 0,
        language: int = _LANGUAGE,
        version: int = VERSION,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.remark = remark
        self.ext: dict[str, str] = {} if ext is None else ext
        self.body = body

    @classmethod
    def decode(cls, frame: Frame) -> Command:
        """Read a frame; raises ProtocolError when its header is none."""
        kind, header, body = frame
        if kind == JSON:
            fields = header_json.decode(header)
        elif kind == ROCKETMQ:
            fields = header_rocketmq.decode(header)
        else:
            raise ProtocolError(f"header type {kind} is neither JSON (0) nor ROCKETMQ (1)")
        code, flag, opaque, version, language, remark, ext = fields
        return cls(
            code,
            opaque,
            flag=flag,
            language=language,
            version=version,
            remark=remark,
            ext=ext,
            body=body,
        )

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer, not even for an error."""
        return self.flag & ONEWAY_FLAG != 0

    def encode(self) -> bytes:
        """Return the whole frame, with a JSON header."""
        if not self.ext and self.remark is None and self.flag == RESPONSE_FLAG:
            return encode_answer(self.opaque, self.code, self.body)
        header = header_json.encode(
            self.code,
            self.opaque,
            self.flag,
            self.language,
            self.version,
            self.remark,
            self.ext or None,
        )
        return encode_frame(header, self.body)

    def __repr__(self) -> str:
        """Return one line for logs and failing tests."""
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        remark = f" {self.remark!r}" if self.remark else ""
        size = len(self.body)
        return f"<{kind} {self.code} #{self.opaque} {self.ext}{remark} body of {size} bytes>"


def encode_answer(opaque: int, code: int, body: bytes = b"") -> bytes:
    """Return the frame of a response that carries no fields and no remark."""
    return encode_frame(_BARE % (code, opaque, _TAIL), body)


def request(
    code: int,
    opaque: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
) -> Command:
    """Make a request; `opaque` is what the answer will be matched by."""
    ext = None if header is None else header.encode()
    return Command(code, opaque, flag=ONEWAY_FLAG if oneway else 0, ext=ext, body=body)


def response(
    opaque: int,
    code: int,
    *,
    remark: str | None = None,
    header: Header | None = None,
    body: bytes = b"",
    ext: Mapping[str, str] | None = None,
) -> Command:
    """Make the answer to the request with this `opaque`; `ext` adds to the header's fields."""
    fields = {} if header is None else header.encode()
    if ext:
        fields.update(ext)
    return Command(int(code), opaque, flag=RESPONSE_FLAG, remark=remark, ext=fields, body=body)
