"""How values become bodies of messages and back: JSON, msgspec, pydantic, protobuf, Avro, your own.

Owns the formats; knows neither topics nor clients (`cometmq.Topic` joins them). A serializer may be
used from several threads. Libraries are imported when a serializer that needs one is made; the
error then names the extra to install.
Java: none
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, is_dataclass
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")
MessageT = TypeVar("MessageT")
_AVRO_MARK = b"\xc3\x01"


class Serializer(ABC, Generic[T]):
    """Turns values into bodies and back. Derive from it for a format of your own.

    `content_type` is written beside each body, in the property `content-type`. `encode` and
    `decode` may raise anything; a producer and a consumer say then which message it was about.
    """

    content_type: str = "application/octet-stream"

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Return the body for a value."""

    @abstractmethod
    def decode(self, body: bytes) -> T:
        """Return the value of a body."""

    def __repr__(self) -> str:
        """Return its name."""
        return type(self).__name__


class Raw(Serializer[bytes]):
    """Bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        """Return the bytes. Raises TypeError for anything else."""
        if not isinstance(value, bytes):
            raise TypeError(f"it is {type(value).__name__}, not bytes")
        return value

    def decode(self, body: bytes) -> bytes:
        """Return the bytes."""
        return body


class Text(Serializer[str]):
    """Texts in UTF-8."""

    content_type = "text/plain"

    def encode(self, value: str) -> bytes:
        """Return the text in UTF-8. Raises TypeError for anything else."""
        if not isinstance(value, str):
            raise TypeError(f"it is {type(value).__name__}, not str")
        return value.encode()

    def decode(self, body: bytes) -> str:
        """Return the text. Raises UnicodeDecodeError for what is no UTF-8."""
        return body.decode()


class Json(Serializer[Any]):
    """What JSON has (dicts, lists, texts, numbers, booleans, None), and dataclasses as dicts.

    By the standard library; what is read has no type. `Typed` checks and makes types.
    """

    content_type = "application/json"

    def encode(self, value: object) -> bytes:
        """Return the value as JSON in UTF-8, NaN refused."""
        text = json.dumps(
            value, default=_as_dict, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return text.encode()

    def decode(self, body: bytes) -> Any:
        """Return the value of JSON."""
        return json.loads(body)


class Typed(Serializer[T]):
    """Values of one type as JSON, or as MessagePack with `format="msgpack"`, by msgspec.

    The type is a dataclass, a msgspec.Struct, a TypedDict, a NamedTuple, an attrs class, or made of
    those, lists, dicts, times and the like: `Typed(Order)`, `Typed(list[Order])`. What does not fit
    the type is refused both ways it is written: a missing field, a text where a number belongs.
    Needs `pip install 'cometmq[fast]'`.
    """

    def __init__(self, kind: type[T], *, format: str = "json") -> None:  # noqa: A002
        if format not in ("json", "msgpack"):
            raise SettingsError(f"format is {format!r}; it must be 'json' or 'msgpack'")
        msgspec = _library("msgspec", "Typed", "fast")
        module = getattr(msgspec, format)
        self._convert = msgspec.convert
        self._kind = kind
        self._encoder, self._decoder = module.Encoder(), module.Decoder(kind)
        self.content_type = f"application/{format}"

    def encode(self, value: T) -> bytes:
        """Return the body. Raises msgspec.ValidationError for a value that does not fit."""
        body: bytes = self._encoder.encode(value)
        self._decoder.decode(body)  # so that nothing is sent that no reader of this type can read
        return body

    def decode(self, body: bytes) -> T:
        """Return the value. Raises msgspec.DecodeError, or ValidationError where it is another."""
        value: T = self._decoder.decode(body)
        return value

    def __repr__(self) -> str:
        """Return its name and that of its type."""
        return f"Typed({_name_of(self._kind)})"


class Pydantic(Serializer[T]):
    """Values of one type as JSON, checked by pydantic: a BaseModel, or what a TypeAdapter takes.

    Fields go under their aliases. Needs `pip install 'cometmq[pydantic]'`.
    """

    content_type = "application/json"

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._adapter = _library("pydantic", "Pydantic", "pydantic").TypeAdapter(kind)

    def encode(self, value: T) -> bytes:
        """Return the value as JSON. Raises pydantic.ValidationError for one that does not fit."""
        checked = self._adapter.validate_python(value)
        body: bytes = self._adapter.dump_json(checked, by_alias=True)
        self._adapter.validate_json(body)  # so that nothing is sent that no reader can read
        return body

    def decode(self, body: bytes) -> T:
        """Return the value. Raises pydantic.ValidationError where it does not fit."""
        value: T = self._adapter.validate_json(body)
        return value

    def __repr__(self) -> str:
        """Return its name and that of its type."""
        return f"Pydantic({_name_of(self._kind)})"


class Protobuf(Serializer[MessageT]):
    """Messages of one class that protoc generated. Needs `pip install 'cometmq[protobuf]'`."""

    content_type = "application/x-protobuf"

    def __init__(self, kind: type[MessageT]) -> None:
        base = _library("google.protobuf.message", "Protobuf", "protobuf").Message
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise SettingsError(f"Protobuf takes a class that protoc generated, not {kind!r:.80}")
        self._kind = kind

    def encode(self, value: MessageT) -> bytes:
        """Return the message's bytes. Raises TypeError for another class."""
        if not isinstance(value, self._kind):
            raise TypeError(f"it is {type(value).__name__}, not {self._kind.__name__}")
        body: bytes = value.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
        return body

    def decode(self, body: bytes) -> MessageT:
        """Return the message. Raises google.protobuf.message.DecodeError for other bytes."""
        value: MessageT = self._kind.FromString(body)  # type: ignore[attr-defined]
        return value

    def __repr__(self) -> str:
        """Return its name and that of its class."""
        return f"Protobuf({self._kind.__name__})"


class Avro(Serializer[Any]):
    """Records of an Avro schema, as dicts, in Avro's single-object encoding.

    Each body begins with C3 01 and the fingerprint (CRC-64-AVRO) of the schema that it was written
    with, so a reader that knows that schema from `older` reads it as `schema`, by Avro's rules of
    schema resolution. Needs `pip install 'cometmq[avro]'`.
    """

    content_type = "application/avro"

    def __init__(
        self, schema: Mapping[str, Any], *, older: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._avro = _library("fastavro", "Avro", "avro")
        self._writers = dict(map(self._known, older))
        self._mark, self._schema = self._known(schema)
        self._writers[self._mark] = self._schema

    def encode(self, value: Any) -> bytes:
        """Return the record. Raises ValueError for one that does not fit the schema."""
        written = BytesIO()
        self._avro.schemaless_writer(written, self._schema, value, strict=True)
        return _AVRO_MARK + self._mark + written.getvalue()

    def decode(self, body: bytes) -> Any:
        """Return the record as a dict. Raises ValueError for other bytes and unknown schemas."""
        if body[:2] != _AVRO_MARK or len(body) < 10:
            raise ValueError("it does not begin as Avro's single objects do, with C3 01")
        writer = self._writers.get(body[2:10])
        if writer is None:
            raise ValueError(
                f"it was written with a schema of the fingerprint {body[2:10].hex()}, which is not "
                "known here: give that schema in older=[...]"
            )
        rest = BytesIO(body[10:])
        record = self._avro.schemaless_reader(rest, writer, self._schema)
        if rest.tell() != len(body) - 10:
            raise ValueError("it goes on after the end of its record")
        return record

    def _known(self, schema: Mapping[str, Any]) -> tuple[bytes, Any]:
        """A schema's fingerprint as bodies carry it (8 bytes, the least one first), and itself."""
        try:
            parsed = self._avro.parse_schema(dict(schema))
            form = self._avro.schema.to_parsing_canonical_form(dict(schema))
        except (TypeError, ValueError, KeyError, self._avro.schema.SchemaParseException) as error:
            raise SettingsError(
                f"a schema of Avro is {schema!r:.80}; it must be a dict as the file of a schema "
                f"has it, of a record for instance: {type(error).__name__} {error}"
            ) from error
        text: str = self._avro.schema.fingerprint(form, "CRC-64-AVRO")
        return bytes.fromhex(text), parsed


def _as_dict(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"JSON has no form for {type(value).__name__}")


def _name_of(kind: object) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _library(name: str, user: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise SettingsError(
            f"{user} needs {name.partition('.')[0]}: pip install 'cometmq[{extra}]'"
        ) from error
