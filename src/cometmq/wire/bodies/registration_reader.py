"""Reads the body of a registration (103) topic by topic, for those that are very large.

Owns the walk to the topic table and through it, and the compressed form; each topic of a JSON body
is read as `decode_registration` reads it. A body that is not standard JSON is read at once while it
is small, and refused otherwise; but the queues of static topics, which Java's brokers write with
bare numbers as names, are passed over.
Invariants: what comes out of a JSON body is what `decode_registration` gives; no step takes more
than some milliseconds, whatever the body holds.
Java: RegisterBrokerBody, decoded at once.
"""

from __future__ import annotations

import json
import re
import zlib
from struct import Struct, error
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.model.topic import TopicConfig
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.bodies.topic import (
    WRAPPED_VERSION,
    Registration,
    TopicTable,
    decode_data_version,
    decode_registration,
    topic_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

INFLATED_BYTES_MAX = 64 * 1024 * 1024
"""Largest registration once it is inflated."""

VALUE_CHARS_MAX = LENIENT_BYTES_MAX
"""Longest value of a large body, and longest piece of a compressed one: each is read at once."""

NAME_CHARS_MAX = 1_024
"""Longest name of a topic. RocketMQ's own have 400 characters at most."""

_KEPT = frozenset(["dataVersion", "filterServerList"])
_UNREAD = frozenset(["topicQueueMappingDetailMap", "topicQueueMappingInfoMap"])
"""Of static topics, which have no support here."""
_TOKENS_PER_STEP = 256
_STEP_CHARS = 65_536
"""So much text is passed over at once, however few values it has."""
_SHORT_CHARS = 1_024
_FORGOTTEN_PER_STEP = 64
_INFLATED_BYTES = 256 * 1024

_I32 = Struct(">i")
_space = re.compile(r"[ \t\r\n]*").match
_outside = re.compile(r'[^"\[\]{}]*+(["\[\]{}]?)').match
_in_text = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL).match
_decode = json.JSONDecoder(strict=False).raw_decode


class RegistrationReader:
    """Reads one body: `topics` grows with each step of `steps`, then `result` is there."""

    def __init__(self, data: bytes, *, is_compressed: bool, version: int, topics_max: int) -> None:
        self._data = data
        self._is_compressed = is_compressed
        self._version = version
        self._topics_max = topics_max
        self._fields: dict[str, Any] = {}
        self.topics: dict[str, TopicConfig] = {}
        self.result: Registration | None = None

    def steps(self) -> Iterator[None]:
        """Read a topic at a time. Raises ProtocolError, also for too many topics."""
        if self._is_compressed:
            yield from self._inflated_steps()
            return
        if len(self._data) <= LENIENT_BYTES_MAX:
            self.result = decode_registration(self._data, version=self._version)
            for name, config in self.result.table.topics.items():
                self._take(name, config)
            return
        yield from self._json_steps()

    def forgetting(self) -> Iterator[None]:
        """Let go of the topics that were read, some with each step: all at once takes long."""
        topics = self.topics
        while topics:
            for _ in range(min(_FORGOTTEN_PER_STEP, len(topics))):
                topics.popitem()
            yield

    def _json_steps(self) -> Iterator[None]:
        try:
            text = self._data.decode()
            yield
            if '$ref"' in text:
                raise ProtocolError("a large registration may not hold back references")
            yield
            wrapper = self._fields
            is_wrapped = self._version >= WRAPPED_VERSION
            outer: dict[str, Any] = {}
            at = yield from self._object(
                text, 0, outer, "topicConfigSerializeWrapper" if is_wrapped else "topicConfigTable"
            )
            if _skip(text, at) != len(text):
                raise ProtocolError(f"the registration goes on behind its end, at {at}")
        except (ValueError, IndexError, RecursionError) as problem:
            raise ProtocolError(f"the large registration is no JSON: {problem}") from problem
        version = version_of((wrapper if is_wrapped else outer).get("dataVersion"))
        servers = json_fields.texts(outer, "filterServerList") if is_wrapped else []
        self.result = Registration(TopicTable(version, self.topics), servers)

    def _object(
        self, text: str, at: int, fields: dict[str, Any], descend: str
    ) -> Generator[None, None, int]:
        """Read an object into `fields`, and into its field `descend`; returns where it ends."""
        at = _sign(text, at, "{")
        while text[at] != "}":
            name, at = _value(text, at)
            at = _sign(text, at, ":")
            if name == descend and text[at] == "{":
                if name == "topicConfigTable":
                    at = yield from self._topics(text, at)
                else:
                    at = yield from self._object(text, at, self._fields, "topicConfigTable")
            elif name in _UNREAD and text[at] == "{":
                at = yield from _passed_over(text, at)
            else:
                value, at = _value(text, at)
                if name in _KEPT:
                    fields[name] = value
            at = _next(text, at)
            yield
        return at + 1

    def _topics(self, text: str, at: int) -> Generator[None, None, int]:
        """Read the topic table; returns where it ends."""
        at = _sign(text, at, "{")
        while text[at] != "}":
            name, at = _value(text, at)
            if not isinstance(name, str):
                raise ProtocolError(f"the large registration has a topic of the name {name!r}")
            value, at = _value(text, _sign(text, at, ":"))
            self._take(name, topic_of(value, name))
            at = _next(text, at)
            yield
        return at + 1

    def _inflated_steps(self) -> Iterator[None]:
        try:
            plain = yield from _inflated(self._data)
            version, at = _piece(plain, 0)
            (count,) = _I32.unpack_from(plain, at)
            at += 4
            for _ in range(count):
                line, at = _piece(plain, at)
                config = _topic_of_line(line.decode())
                self._take(config.topic_name, config)
                yield
            servers, at = _piece(plain, at)
        except (error, zlib.error, UnicodeDecodeError) as problem:
            raise ProtocolError(f"the compressed registration is damaged: {problem}") from problem
        table = TopicTable(decode_data_version(version), self.topics)
        found = {"filterServerList": fastjson.loads(servers)}
        self.result = Registration(table, json_fields.texts(found, "filterServerList"))

    def _take(self, name: str, config: TopicConfig) -> None:
        if len(name) > NAME_CHARS_MAX:
            raise ProtocolError(
                f"the registration has a topic with a name of {len(name)} characters, "
                f"{name[:32]!r}...; the limit is {NAME_CHARS_MAX}"
            )
        self.topics[name] = config
        if len(self.topics) > self._topics_max:
            raise ProtocolError(
                f"the registration has more than {self._topics_max} topics "
                "(registeredTopicsPerBrokerMax of the name server)"
            )


def _inflated(data: bytes) -> Generator[None, None, bytes]:
    """What was compressed, or its first `INFLATED_BYTES_MAX`."""
    inflater, pieces, left = zlib.decompressobj(), [], INFLATED_BYTES_MAX
    for at in range(0, len(data), _STEP_CHARS):
        rest = data[at : at + _STEP_CHARS]
        while rest and left > 0:
            pieces.append(inflater.decompress(rest, min(left, _INFLATED_BYTES)))
            left -= len(pieces[-1])
            rest = inflater.unconsumed_tail
            yield
    return b"".join(pieces)


def _piece(plain: bytes, at: int) -> tuple[bytes, int]:
    """The piece with its length before it at `at`, and where it ends."""
    (size,) = _I32.unpack_from(plain, at)
    end = at + 4 + size
    if size < 0 or end > len(plain):
        raise ProtocolError(f"the compressed registration holds a piece of {size} bytes at {at}")
    if size > VALUE_CHARS_MAX:
        raise ProtocolError(
            f"the compressed registration holds a piece of {size} bytes at {at}, "
            f"the limit is {VALUE_CHARS_MAX}"
        )
    return plain[at + 4 : end], end


def _topic_of_line(line: str) -> TopicConfig:
    """Read "name read write perm filterType attributesJson"; the last two may be missing."""
    parts = [*line.split(" ", 5), "", ""]
    if len(parts) < 6:
        raise ProtocolError(f"the compressed registration holds the topic {line[:80]!r}")
    attributes = fastjson.loads(parts[5].encode()) if parts[5] else {}
    return TopicConfig(
        topic_name=parts[0],
        read_queue_nums=json_fields.as_number(parts[1], "readQueueNums"),
        write_queue_nums=json_fields.as_number(parts[2], "writeQueueNums"),
        perm=json_fields.as_number(parts[3], "perm"),
        topic_filter_type=parts[4] or "SINGLE_TAG",
        attributes=json_fields.text_table({"attributes": attributes}, "attributes"),
    )


def _passed_over(text: str, at: int) -> Generator[None, None, int]:
    """Where an object ends; of what is in it only brackets and strings are looked at."""
    depth, start, is_text, tokens = 0, at, False, 0
    while found := (_in_text if is_text else _outside)(text, at, at + _STEP_CHARS):
        token, size, at = found[1], found.end() - at, found.end()
        if not size:
            break
        if token == '"':
            is_text = not is_text
        elif token:
            depth += (token in "{[") - (token in "}]")
            if not depth:
                return at
        tokens += 1
        if tokens % _TOKENS_PER_STEP == 0 or size > _STEP_CHARS // 2:
            yield
    raise ProtocolError(f"the large registration has an object without an end, at {start}")


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends; none is long but those read in steps."""
    for length in (_SHORT_CHARS, VALUE_CHARS_MAX):
        piece = text[at : at + length]
        try:
            value, end = _decode(piece)
        except ValueError:
            if len(piece) < length:
                raise
            continue  # it is cut
        if end < len(piece) or len(piece) < length:  # else a number may go on
            return value, at + end
    raise ProtocolError(
        f"the large registration has no JSON, or more than {VALUE_CHARS_MAX} characters of it, "
        f"as the value at {at}"
    )


def _skip(text: str, at: int) -> int:
    found = _space(text, at)
    assert found is not None, "no white space at all is found as well"
    return found.end()


def _next(text: str, at: int) -> int:
    """Where the next field of an object begins, or its end is."""
    at = _skip(text, at)
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] != "}":
        raise ProtocolError(f"the large registration has {text[at]!r} at {at}, not ',' or '}}'")
    return at


def _sign(text: str, at: int, wanted: str) -> int:
    """Where the value behind a sign begins."""
    at = _skip(text, at)
    if text[at] != wanted:
        raise ProtocolError(f"the large registration has {text[at]!r} at {at}, not {wanted!r}")
    return _skip(text, at + 1)
