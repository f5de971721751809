"""Bodies that are one list or one table of texts.

Topic list (206, 224, 304, 305, 343), group list (300), consumer ids (38), key-value table (28,
103's answer, 219).
Java: TopicList, GroupList, GetConsumerListByGroupResponseBody, KVTable.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING

from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_RUN = 1_000


def encode_topic_list(topics: Collection[str], broker_addr: str | None = None) -> bytes:
    """Write topic names, sorted."""
    return fastjson.dumps({"brokerAddr": broker_addr, "topicList": sorted(topics)})


def topic_list_pieces(topics: list[str]) -> Iterator[bytes]:
    """Write topic names, sorted, piece by piece: for very many. As `encode_topic_list` does."""
    runs = []
    for at in range(0, len(topics), _RUN):
        runs.append(sorted(topics[at : at + _RUN]))
        yield b""
    yield b'{"topicList":['
    mark = b""
    for name in merge(*runs):
        yield mark + fastjson.dumps(name)
        mark = b","
    yield b"]}"


def decode_topic_list(data: bytes) -> list[str]:
    """Read topic names."""
    return json_fields.texts(json_fields.load_object(data), "topicList")


def encode_group_list(groups: Collection[str]) -> bytes:
    """Write group names, sorted."""
    return fastjson.dumps({"groupList": sorted(groups)})


def decode_group_list(data: bytes) -> list[str]:
    """Read group names."""
    return json_fields.texts(json_fields.load_object(data), "groupList")


def encode_consumer_list(client_ids: Collection[str]) -> bytes:
    """Write the ids of a group's clients."""
    return fastjson.dumps({"consumerIdList": list(client_ids)})


def decode_consumer_list(data: bytes) -> list[str]:
    """Read the ids of a group's clients."""
    return json_fields.texts(json_fields.load_object(data), "consumerIdList")


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Write a table of texts."""
    return fastjson.dumps({"table": dict(table)})


def decode_kv_table(data: bytes) -> dict[str, str]:
    """Read a table of texts; an empty body is an empty table."""
    return json_fields.text_table(json_fields.load_object(data), "table")
