"""Two answers to the same request laid side by side: what differs, path by path.

Values that must differ are replaced first: times of this run, ports, offsets in the log. What a
person reads (remarks) counts as there or not there, unless it is a name in capitals.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cometmq.errors import CometError
from cometmq.wire import fastjson
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cometmq.wire.command import Command

RECORD_CODES = {11, 361, 33, 12}
TEXT_CODES, RUNTIME_INFO, DELAY_OFFSETS = {26, 319}, 28, 45
_RECENT = re.compile(r"(?<![0-9])1[789]\d{11}(?!\d)")
_ID = re.compile(
    r"(?<![0-9A-F])(?!0([0-9A-F])(?:0\1)+(?![0-9A-F]))[0-9A-F]{32}(?:[0-9A-F]{24})?(?![0-9A-F])"
)
"""An id that a broker made; those of our requests repeat one byte."""
_PATH = re.compile(r"/tmp/[^\s\"]*")
_PORT = re.compile(r"(127\.0\.0\.1|0\.0\.0\.0):\d{2,5}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}")
_NAME = re.compile(r"^[A-Z_]+$")


def facts(code: int, answer: Command | None) -> dict[str, str]:
    """An answer as flat facts."""
    if answer is None:
        return {"answered": "no"}
    found = {"code": str(answer.code)}
    if answer.remark:
        found["remark"] = answer.remark if _NAME.match(answer.remark) else "a text"
    for key, value in answer.ext.items():
        found[f"ext.{key}"] = _plain(value)
    if answer.body:
        found |= {f"body{path}": value for path, value in _body(code, answer.body)}
    else:
        found["body"] = "none"
    if code == DELAY_OFFSETS:  # when and how often the file was written so far
        found = {key: each for key, each in found.items() if "dataVersion" not in key}
    return found


def _body(code: int, body: bytes) -> Iterator[tuple[str, str]]:
    if code in RECORD_CODES:
        for n, record in enumerate(stored.iterate(body)):
            yield from ((f".{n}.{key}", value) for key, value in _record(record))
        return
    if code == RUNTIME_INFO:
        yield from ((f".{_plain(key)}", "a value") for key in fastjson.loads(body)["table"])
        return
    if code not in TEXT_CODES:
        try:
            yield from _flat("", fastjson.loads(body))
        except CometError:
            yield "", _plain(body.decode("utf-8", "replace"))
        return
    for line in body.decode().splitlines():
        yield f".{line.partition('=')[0]}", "a line"


def _record(record: stored.StoredRecord) -> Iterator[tuple[str, str]]:
    for key, value in record._asdict().items():
        if key in (
            "properties",
            "body",
            "phy_offset",
            "size",
            "magic",
            "body_crc",
            "born_host",
            "store_host",
        ):
            continue
        yield key, _plain(str(value))
    yield "hosts", f"{len(record.born_host)} {len(record.store_host)}"
    yield "body", str(len(record.body)) if len(record.body) > 99 else repr(record.body)
    for key, value in sorted(stored.text_properties(record).items()):
        yield f"properties.{key}", "long" if len(value) > 99 else _plain(value)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if not value:
            yield path, "{}"
        for key, each in value.items():
            yield from _flat(f"{path}.{_plain(str(key))}", each)
    elif isinstance(value, list):
        if not value:
            yield path, "[]"
        for n, each in enumerate(sorted(value, key=_sorted_by)):
            if isinstance(each, dict | list):
                yield from _flat(f"{path}[{_called(each, n)}]", each)
            else:
                yield f"{path}[{_plain(str(each))}]", "listed"
    elif path.endswith((".physicOffset", ".physicSize")):
        yield path, "a place in the log"  # our records carry a checksum
    elif isinstance(value, float):
        yield path, "a double"
    else:
        yield path, _plain(fastjson.dumps(value).decode())


def _called(item: Any, n: int) -> str:
    """What an object in a list is known by, so that one more does not shift the others."""
    found = item.get("messageQueue", item) if isinstance(item, dict) else {}
    known = [str(found[key]) for key in ("topic", "queueId", "brokerName") if key in found]
    if not known and isinstance(item, dict) and len(item) == 1:
        known = list(item)
    return _plain("@".join(known)) if known else str(n)


def _sorted_by(value: Any) -> str:
    return _plain(fastjson.dumps(value).decode())


def _plain(text: str) -> str:
    text = _PATH.sub("<path>", text)
    text = _PORT.sub("<addr>", text)
    text = _TIME.sub("<time>", text)
    text = _ID.sub("<id>", text)
    return _RECENT.sub("<now>", text)


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Path, Apache's value, ours; "-" for what is not there. A different code hides the rest."""
    if theirs.get("code") != ours.get("code"):
        return [("code", theirs.get("code", "no answer"), ours.get("code", "no answer"))]
    return [
        (path, theirs.get(path, "-"), ours.get(path, "-"))
        for path in sorted({*theirs, *ours})
        if theirs.get(path) != ours.get(path)
    ]
