"""Bodies about topics: one (351), a table of them (21), a registration (103), versions (322).

Java: TopicConfig, TopicConfigAndMappingSerializeWrapper, RegisterBrokerBody, DataVersion.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

WRAPPED_VERSION = 37
"""From this version on a registration wraps the topic table; before, the table is the body."""
_I32 = Struct(">i")


class TopicTable(NamedTuple):
    """A broker's topics by name, and the version of that table."""

    version: DataVersion
    topics: dict[str, TopicConfig]


class Registration(NamedTuple):
    """What a broker registers."""

    table: TopicTable
    filter_servers: list[str]


def encode_topic_config(config: TopicConfig) -> bytes:
    """Write one topic."""
    return fastjson.dumps(topic_fields(config))


def decode_topic_config(data: bytes) -> TopicConfig:
    """Read one topic."""
    return topic_of(fastjson.loads(data))


def encode_topic_config_list(configs: Iterable[TopicConfig]) -> bytes:
    """Write the topics to create (18)."""
    return fastjson.dumps({"topicConfigList": [topic_fields(config) for config in configs]})


def decode_topic_config_list(data: bytes) -> list[TopicConfig]:
    """Read the topics to create (18)."""
    return json_fields.items(json_fields.load_request(data), "topicConfigList", topic_of)


def encode_topic_table(table: TopicTable) -> bytes:
    """Write a broker's topics (21)."""
    return fastjson.dumps(_table_fields(table))


def decode_topic_table(data: bytes) -> TopicTable:
    """Read a broker's topics (21)."""
    return topic_table_of(json_fields.load_object(data))


def encode_registration(registration: Registration) -> bytes:
    """Write the body of 103, not compressed; `deflate_registration` writes it so."""
    fields = {
        "filterServerList": registration.filter_servers,
        "topicConfigSerializeWrapper": _table_fields(registration.table),
    }
    return fastjson.dumps(fields)


def deflate_registration(registration: Registration) -> bytes:
    """Write the body of 103 compressed, as brokers since 5.0 do; order and unit marks are lost.

    `registration_reader` reads it.
    """
    table, servers = registration
    lines = [_line_of_topic(config).encode() for config in table.topics.values()]
    pieces = [_prefixed(encode_data_version(table.version)), _I32.pack(len(lines))]
    pieces += map(_prefixed, lines)
    pieces += [_prefixed(fastjson.dumps(servers)), _I32.pack(0)]  # and no mapped topics
    return zlib.compress(b"".join(pieces), zlib.Z_BEST_COMPRESSION)


def decode_registration(data: bytes, *, version: int = WRAPPED_VERSION) -> Registration:
    """Read the body of 103, not compressed, from a broker of this version; empty: no topics."""
    obj = json_fields.load_object(data)
    if version < WRAPPED_VERSION:
        return Registration(topic_table_of(obj), [])
    wrapper = json_fields.object_of(
        obj.get("topicConfigSerializeWrapper"), "topicConfigSerializeWrapper"
    )
    return Registration(topic_table_of(wrapper), json_fields.texts(obj, "filterServerList"))


def encode_data_version(version: DataVersion) -> bytes:
    """Write a version."""
    return fastjson.dumps(version_fields(version))


def decode_data_version(data: bytes) -> DataVersion:
    """Read a version."""
    return version_of(fastjson.loads(data))


def version_fields(version: DataVersion) -> dict[str, object]:
    """Return a version as it is written."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }


def version_of(value: Any) -> DataVersion:
    """Read a version."""
    obj = json_fields.object_of(value, "a data version")
    return DataVersion(
        state_version=json_fields.number(obj, "stateVersion"),
        timestamp=json_fields.number(obj, "timestamp"),
        counter=json_fields.number(obj, "counter"),
    )


def topic_fields(config: TopicConfig) -> dict[str, object]:
    """Return a topic as it is written."""
    return {
        "attributes": config.attributes,
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic_name,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }


def topic_of(value: Any, name: str = "") -> TopicConfig:
    """Read a topic; `name` stands in where it carries none."""
    obj = json_fields.object_of(value, "a topic")
    default = TopicConfig(topic_name=name)
    return TopicConfig(
        topic_name=json_fields.text(obj, "topicName", name),
        read_queue_nums=json_fields.number(obj, "readQueueNums", default.read_queue_nums),
        write_queue_nums=json_fields.number(obj, "writeQueueNums", default.write_queue_nums),
        perm=json_fields.number(obj, "perm", default.perm),
        topic_filter_type=json_fields.text(obj, "topicFilterType", default.topic_filter_type),
        topic_sys_flag=json_fields.number(obj, "topicSysFlag"),
        order=json_fields.flag(obj, "order"),
        attributes=json_fields.text_table(obj, "attributes"),
    )


def _table_fields(table: TopicTable) -> dict[str, object]:
    return {
        "dataVersion": version_fields(table.version),
        "mappingDataVersion": version_fields(DataVersion()),
        "topicConfigTable": {name: topic_fields(config) for name, config in table.topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }


def topic_table_of(obj: json_fields.Json) -> TopicTable:
    """Read a broker's topics as 21 and topics.json have them."""
    configs = json_fields.object_of(obj.get("topicConfigTable"), "topicConfigTable")
    topics = {name: topic_of(value, name) for name, value in configs.items()}
    return TopicTable(version_of(obj.get("dataVersion")), topics)


def _prefixed(piece: bytes) -> bytes:
    return _I32.pack(len(piece)) + piece


def _line_of_topic(config: TopicConfig) -> str:
    attributes = fastjson.dumps(config.attributes).decode()
    queues = f"{config.read_queue_nums} {config.write_queue_nums}"
    return f"{config.topic_name} {queues} {config.perm} {config.topic_filter_type} {attributes}"
