"""Bodies that tell an administrator of one broker: figures (315), queue contents (321) and more.

More is: every group's progress (317), producers (328), a subscription (345), the least offsets
(308), what a group may not read (353), and the state of replication (907).
Java: BrokerStatsData, QueryConsumeQueueResponseBody, ConsumeStatsList, ProducerTableInfo,
QuerySubscriptionResponseBody, QueryCorrectionOffsetBody, GroupForbidden, HARuntimeInfo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.model.admin_stats import ProducerInfo
from cometmq.model.replication import MasterStatus, ReplicationStatus, SlaveStatus
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.admin import consume_stats_fields
from cometmq.wire.bodies.heartbeat import subscription_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cometmq.model.admin_stats import ConsumeStats
    from cometmq.model.subscription import SubscriptionData

Figure = tuple[int, float, float]
"""A sum, how much of it a second, and how much of it a call."""


class QueueContents(NamedTuple):
    """A piece of a consume queue: (phy_offset, size, tags code) of each message, and its ends.

    `subscription` and `filter_data` are of the group that was named with the question.
    """

    entries: Sequence[tuple[int, int, int]]
    min_index: int
    max_index: int
    subscription: SubscriptionData | None = None
    filter_data: str | None = None


def encode_broker_figures(minute: Figure, hour: Figure, day: Figure) -> bytes:
    """Write the answer to 315."""
    named = (("statsDay", day), ("statsHour", hour), ("statsMinute", minute))
    return fastjson.dumps(
        {
            name: {"avgpt": per_call, "sum": total, "tps": per_second}
            for name, (total, per_second, per_call) in named
        }
    )


def decode_broker_figures(data: bytes) -> tuple[Figure, Figure, Figure]:
    """Read the answer to 315: of the last minute, hour and day."""
    obj = json_fields.load_object(data)
    names = ("statsMinute", "statsHour", "statsDay")
    minute, hour, day = (_figure_of(obj.get(name), name) for name in names)
    return minute, hour, day


def encode_queue_contents(found: QueueContents) -> bytes:
    """Write the answer to 321."""
    fields = {
        "filterData": found.filter_data,
        "maxQueueIndex": found.max_index,
        "minQueueIndex": found.min_index,
        "queueData": [
            {
                "eval": False,
                "physicOffset": phy_offset,
                "physicSize": size,
                "tagsCode": tags_code,
            }
            for phy_offset, size, tags_code in found.entries
        ],
        "subscriptionData": _subscription(found.subscription),
    }
    return fastjson.dumps(fields)


def encode_consume_stats_list(
    broker_addr: str, groups: Mapping[str, Iterable[ConsumeStats]], lag: int, in_flight: int
) -> bytes:
    """Write the answer to 317: each group with its progress by topic, and the sums of all."""
    fields = {
        "brokerAddr": broker_addr,
        "consumeStatsList": [
            {group: [consume_stats_fields(each) for each in found]}
            for group, found in groups.items()
        ],
        "totalDiff": lag,
        "totalInflightDiff": in_flight,
    }
    return fastjson.dumps(fields)


def consume_stats_list_entry(group: str, found: Iterable[bytes]) -> bytes:
    """One item of the list in that answer: a group with its progress by topic, as 208 has it."""
    return b"{%b:[%b]}" % (fastjson.dumps(group), b",".join(found))


def encode_producer_table(groups: Mapping[str, Iterable[ProducerInfo]]) -> bytes:
    """Write the answer to 328."""
    data = {group: list(map(_producer_fields, found)) for group, found in groups.items()}
    return fastjson.dumps({"data": data})


def producer_entry(group: str, found: Iterable[ProducerInfo]) -> bytes:
    """One entry of the table in that answer."""
    return fastjson.dump_entry(group, list(map(_producer_fields, found)))


def decode_producer_table(data: bytes) -> dict[str, list[ProducerInfo]]:
    """Read the answer to 328."""
    groups = json_fields.object_of(json_fields.load_object(data).get("data"), "data")
    return {name: json_fields.items(groups, name, _producer_of) for name in groups}


def encode_subscription(
    group: str, topic: str | None, subscription: SubscriptionData | None
) -> bytes:
    """Write the answer to 345."""
    fields = {"group": group, "subscriptionData": _subscription(subscription), "topic": topic}
    return fastjson.dumps(fields)


def encode_correction_offsets(offsets: Mapping[int, int]) -> bytes:
    """Write the answer to 308."""
    return fastjson.dumps({"correctionOffsets": dict(offsets)})


def encode_group_forbidden(group: str, topic: str, *, is_readable: bool) -> bytes:
    """Write the answer to 353."""
    return fastjson.dumps({"group": group, "readable": is_readable, "topic": topic})


def encode_replication_status(status: ReplicationStatus) -> bytes:
    """Write the answer to 907. `lagMillis` and `problem` are ours; Apache's tools skip them."""
    master = status.master
    client: dict[str, object] = {
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
        "masterFlushOffset": 0,
        "maxOffset": status.log_end if master else 0,
        "transferredByteInSecond": 0,
    }
    if master is not None:
        client |= {"masterAddr": master.addr, "problem": master.problem}
    connections = [
        {
            "addr": each.addr,
            "diff": each.lag_bytes,
            "inSync": each.is_in_sync,
            "lagMillis": each.lag_ms,
            "slaveAckOffset": each.acknowledged,
            "transferFromWhere": each.next_offset,
            "transferredByteInSecond": each.bytes_per_second,
        }
        for each in status.slaves
    ]
    fields = {
        "haClientRuntimeInfo": client,
        "haConnectionInfo": connections,
        "inSyncSlaveNums": sum(each.is_in_sync for each in status.slaves),
        "master": master is None,
        "masterCommitLogMaxOffset": 0 if master else status.log_end,
    }
    return fastjson.dumps(fields)


def decode_replication_status(data: bytes) -> ReplicationStatus:
    """Read the answer to 907, ours or Apache's, which says no lag in time: 0 there."""
    obj = json_fields.load_object(data)
    if not obj.get("master"):
        client = json_fields.object_of(obj.get("haClientRuntimeInfo"))
        end = json_fields.number(client, "maxOffset", 0)
        addr, problem = client.get("masterAddr") or "", client.get("problem") or ""
        return ReplicationStatus(end, (), MasterStatus(str(addr), end, str(problem)))
    slaves = tuple(
        SlaveStatus(
            addr=str(each.get("addr") or ""),
            acknowledged=json_fields.number(each, "slaveAckOffset", 0),
            next_offset=json_fields.number(each, "transferFromWhere", 0),
            lag_bytes=json_fields.number(each, "diff", 0),
            lag_ms=json_fields.number(each, "lagMillis", 0),
            bytes_per_second=json_fields.number(each, "transferredByteInSecond", 0),
            is_in_sync=bool(each.get("inSync")),
        )
        for each in json_fields.items(obj, "haConnectionInfo", json_fields.object_of)
    )
    return ReplicationStatus(json_fields.number(obj, "masterCommitLogMaxOffset", 0), slaves)


def _producer_fields(one: ProducerInfo) -> dict[str, object]:
    return {
        "clientId": one.client_id,
        "language": one.language,
        "lastUpdateTimestamp": one.seen_ms,
        "remoteIP": one.remote_addr,
        "version": one.version,
    }


def _producer_of(value: Any) -> ProducerInfo:
    obj = json_fields.object_of(value, "a producer")
    return ProducerInfo(
        client_id=json_fields.text(obj, "clientId"),
        remote_addr=json_fields.text(obj, "remoteIP"),
        language=json_fields.text(obj, "language"),
        version=json_fields.number(obj, "version"),
        seen_ms=json_fields.number(obj, "lastUpdateTimestamp"),
    )


def _figure_of(value: Any, name: str) -> Figure:
    obj = json_fields.object_of(value, name)
    total = json_fields.number(obj, "sum")
    return total, json_fields.real(obj, "tps"), json_fields.real(obj, "avgpt")


def _subscription(found: SubscriptionData | None) -> dict[str, object] | None:
    return None if found is None else subscription_fields(found)
