"""Hot. Requests to send, made from a form: all that is the same from send to send stands there.

One form for a queue and what a producer says of all its messages; four gaps: born time, the
properties, `opaque` and the body. Refuses to know connections, and to compress.
Invariant: a frame decodes to the same command as one that was built field by field; keys stand in
alphabetical order, so a broker that learns layouts sees one.
Java: none; SendMessageRequestHeaderV2 is encoded each time.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from struct import Struct
from typing import TYPE_CHECKING

from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.wire.codes import LanguageCode, RequestCode
from cometmq.wire.command import VERSION
from cometmq.wire.request_signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature_of
from cometmq.wire.templates.send_template import unescaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.wire.request_signature import Credentials

_pack_head = Struct(">II").pack
_pack_item = Struct(">iiiii").pack
_pack_length = Struct(">h").pack
_UNIQUE = b"UNIQ_KEY\x01"
_HEADER = (
    '{"code":%d,"extFields":{%s"a":%s,"b":%s,"c":%s,"d":"%d","e":"%d","f":"0","g":"%%d","h":"0",'
    '"i":"UNIQ_KEY\\u0001%%b\\u0002%%b","j":"0","k":"false","m":"%s","n":%s},"flag":0,'
    '"language":"%s","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class SendRequestTemplate:
    """The form of SEND_MESSAGE_V2, or of SEND_BATCH_MESSAGE, for one queue."""

    __slots__ = ("_header",)

    def __init__(
        self,
        group: str,
        topic: str,
        broker_name: str,
        queue_id: int,
        default_queues: int,
        *,
        batch: bool = False,
        first_fields: str = "",
    ) -> None:
        """Write down what does not change; `default_queues` is for a topic yet to be made.

        `first_fields` are fields of the header whose names stand before the others.
        """
        self._header = (
            _HEADER
            % (
                RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
                first_fields,
                _safe(group),
                _safe(topic),
                _safe(DEFAULT_TOPIC),
                default_queues,
                queue_id,
                "true" if batch else "false",
                _safe(broker_name),
                LanguageCode.PYTHON.name,
                VERSION,
            )
        ).encode()

    def pieces(
        self, opaque: int, born_ms: int, uniq_key: bytes, properties: bytes, body: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """One request, to be joined: `properties` are those beside UNIQ_KEY, escaped for JSON."""
        header = self._header % (born_ms, uniq_key, properties, opaque)
        size = len(header)
        return _pack_head(4 + size + len(body), size), header, body

    def frame(
        self, opaque: int, born_ms: int, uniq_key: bytes, properties: bytes, body: bytes
    ) -> bytes:
        """The same in one."""
        return b"".join(self.pieces(opaque, born_ms, uniq_key, properties, body))


class SignedSendRequestTemplate(SendRequestTemplate):
    """The same with the signature of each request."""

    __slots__ = ("_secret_key", "_signed")

    def __init__(
        self,
        group: str,
        topic: str,
        broker_name: str,
        queue_id: int,
        default_queues: int,
        *,
        credentials: Credentials,
        batch: bool = False,
    ) -> None:
        """Write down what does not change, also of what a signature covers."""
        keys = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token:
            keys[SECURITY_TOKEN] = credentials.security_token
        fields = "".join([f'"{name}":{_safe(text)},' for name, text in keys.items()])
        super().__init__(
            group,
            topic,
            broker_name,
            queue_id,
            default_queues,
            batch=batch,
            first_fields=f'{fields}"{SIGNATURE}":"%b",',
        )
        before = (*keys.values(), group, topic, DEFAULT_TOPIC, f"{default_queues}{queue_id}0")
        after = f"0false{'true' if batch else 'false'}{broker_name}"
        values = ("".join(before), "%d0UNIQ_KEY\x01%b\x02%b", after)
        self._signed = "".join(
            [values[0].replace("%", "%%"), values[1], values[2].replace("%", "%%")]
        ).encode()
        self._secret_key = credentials.secret_key.encode()

    def pieces(
        self, opaque: int, born_ms: int, uniq_key: bytes, properties: bytes, body: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """One request, to be joined."""
        signed = self._signed % (born_ms, uniq_key, unescaped(properties)) + body
        signature = signature_of(self._secret_key, signed)
        header = self._header % (signature, born_ms, uniq_key, properties, opaque)
        size = len(header)
        return _pack_head(4 + size + len(body), size), header, body


def batch_body(bodies: Sequence[bytes], keys: Sequence[bytes], tail: bytes) -> bytes:
    """The body of a batch (see `message_batch`): one item a body, each with its UNIQ_KEY.

    All keys have one length; `tail` is the properties that follow, the same for all. There is one
    key for each body, and one body at least.
    """
    count, sizes = len(bodies), list(map(len, bodies))
    length = len(_UNIQUE) + len(keys[0]) + 1 + len(tail)
    heads = {size: _pack_item(22 + length + size, 0, 0, 0, size) for size in set(sizes)}
    pieces = [_pack_length(length) + _UNIQUE] * (5 * count)
    pieces[0::5] = [heads[sizes[0]]] * count if len(heads) == 1 else [heads[one] for one in sizes]
    pieces[1::5] = bodies
    pieces[3::5] = keys
    pieces[4::5] = [b"\x02" + tail] * count
    return b"".join(pieces)


def _safe(text: str) -> str:
    """A JSON text in which the percent sign is no gap."""
    return quoted(text).replace("%", "%%")
