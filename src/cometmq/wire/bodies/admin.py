"""Bodies for administrators: connections (203, 204), statistics (202, 208, 303), 307 and 309.

Java: ConsumerConnection, ProducerConnection, TopicStatsTable, ConsumeStats,
QueryConsumeTimeSpanBody, ConsumerRunningInfo, ConsumeMessageDirectlyResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.model.admin_stats import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStats,
    ProcessQueueInfo,
    QueueProgress,
    QueueTimeSpan,
    TopicConsumeRates,
    TopicOffset,
)
from cometmq.model.subscription import (
    ClientConnection,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.heartbeat import subscription_fields, subscription_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cometmq.model.queue import MessageQueue

_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)
_TOPIC_OFFSET = {
    "last_update_timestamp": "lastUpdateTimestamp",
    "max_offset": "maxOffset",
    "min_offset": "minOffset",
}
_QUEUE_PROGRESS = {
    "broker_offset": "brokerOffset",
    "consumer_offset": "consumerOffset",
    "last_timestamp": "lastTimestamp",
    "pull_offset": "pullOffset",
}


class ConsumerConnections(NamedTuple):
    """The connections of a consumer group and what the group reads."""

    connections: list[ClientConnection]
    subscriptions: dict[str, SubscriptionData]
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def encode_consumer_connections(group: ConsumerConnections) -> bytes:
    """Write the answer to 203."""
    fields = {
        "connectionSet": [_connection_fields(one) for one in group.connections],
        "consumeFromWhere": group.consume_from_where,
        "consumeType": group.consume_type,
        "messageModel": group.message_model,
        "subscriptionTable": {
            topic: subscription_fields(sub) for topic, sub in group.subscriptions.items()
        },
    }
    return fastjson.dumps(fields)


def connection_entry(one: ClientConnection) -> bytes:
    """One item of the list of connections in the answers to 203 and 204."""
    return fastjson.dumps(_connection_fields(one))


def decode_consumer_connections(data: bytes) -> ConsumerConnections:
    """Read the answer to 203."""
    obj = json_fields.load_object(data)
    first = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumerConnections(
        json_fields.items(obj, "connectionSet", _connection_of),
        json_fields.table(obj, "subscriptionTable", subscription_of),
        json_fields.member(obj, "consumeType", ConsumeType.CONSUME_PASSIVELY),
        json_fields.member(obj, "messageModel", MessageModel.CLUSTERING),
        json_fields.member(obj, "consumeFromWhere", first),
    )


def encode_producer_connections(connections: Iterable[ClientConnection]) -> bytes:
    """Write the answer to 204."""
    return fastjson.dumps({"connectionSet": [_connection_fields(one) for one in connections]})


def decode_producer_connections(data: bytes) -> list[ClientConnection]:
    """Read the answer to 204."""
    return json_fields.items(json_fields.load_object(data), "connectionSet", _connection_of)


def encode_topic_stats(offsets: Mapping[MessageQueue, TopicOffset], put_tps: float = 0.0) -> bytes:
    """Write the answer to 202."""
    table = {queue: _numbers(one, _TOPIC_OFFSET) for queue, one in offsets.items()}
    return fastjson.dumps({"offsetTable": json_fields.queue_keys(table), "topicPutTps": put_tps})


def topic_offset_entry(queue: MessageQueue, one: TopicOffset) -> bytes:
    """One entry of the table in that answer."""
    return json_fields.queue_entry(queue, _numbers(one, _TOPIC_OFFSET))


def decode_topic_stats(data: bytes) -> dict[MessageQueue, TopicOffset]:
    """Read the answer to 202."""
    return json_fields.queue_table(json_fields.load_object(data), "offsetTable", _topic_offset_of)


def encode_consume_stats(stats: ConsumeStats) -> bytes:
    """Write the answer to 208."""
    return fastjson.dumps(consume_stats_fields(stats))


def consume_stats_fields(stats: ConsumeStats) -> dict[str, object]:
    """Return a group's progress as it is written."""
    table = {queue: _numbers(one, _QUEUE_PROGRESS) for queue, one in stats.offset_table.items()}
    return {"consumeTps": stats.consume_tps, "offsetTable": json_fields.queue_keys(table)}


def queue_progress_entry(queue: MessageQueue, one: QueueProgress) -> bytes:
    """One entry of the table in that answer."""
    return json_fields.queue_entry(queue, _numbers(one, _QUEUE_PROGRESS))


def decode_consume_stats(data: bytes) -> ConsumeStats:
    """Read the answer to 208."""
    obj = json_fields.load_object(data)
    return ConsumeStats(
        offset_table=json_fields.queue_table(obj, "offsetTable", _queue_progress_of),
        consume_tps=json_fields.real(obj, "consumeTps"),
    )


def encode_time_spans(spans: Iterable[QueueTimeSpan], shown: Callable[[int], str]) -> bytes:
    """Write the answer to 303; `shown` writes a time out as people read it."""
    return fastjson.dumps({"consumeTimeSpanSet": [_span_fields(span, shown) for span in spans]})


def time_span_entry(span: QueueTimeSpan, shown: Callable[[int], str]) -> bytes:
    """One item of the list in that answer."""
    return fastjson.dumps(_span_fields(span, shown))


def decode_time_spans(data: bytes) -> list[QueueTimeSpan]:
    """Read the answer to 303."""
    return json_fields.items(json_fields.load_object(data), "consumeTimeSpanSet", _span_of)


def encode_running_info(info: ConsumerRunningInfo) -> bytes:
    """Write a consumer's answer to 307."""
    queues = {queue: _process_queue_fields(one) for queue, one in info.mq_table.items()}
    fields = {
        "jstack": info.jstack,
        "mqPopTable": {},
        "mqTable": json_fields.queue_keys(queues),
        "properties": info.properties,
        "statusTable": {topic: _status_fields(one) for topic, one in info.status_table.items()},
        "subscriptionSet": [subscription_fields(sub) for sub in info.subscriptions],
        "userConsumerInfo": {},
    }
    return fastjson.dumps(fields)


def decode_running_info(data: bytes) -> ConsumerRunningInfo:
    """Read a consumer's answer to 307."""
    obj = json_fields.load_object(data)
    return ConsumerRunningInfo(
        properties=json_fields.text_table(obj, "properties"),
        subscriptions=tuple(json_fields.items(obj, "subscriptionSet", subscription_of)),
        mq_table=json_fields.queue_table(obj, "mqTable", _process_queue_of),
        status_table=json_fields.table(obj, "statusTable", _status_of),
        jstack=json_fields.text_or_none(obj, "jstack"),
    )


def encode_directly_result(result: ConsumeMessageDirectlyResult) -> bytes:
    """Write a consumer's answer to 309."""
    fields = {
        "autoCommit": result.auto_commit,
        "consumeResult": result.consume_result,
        "order": result.order,
        "remark": result.remark,
        "spentTimeMills": result.spent_time_ms,
    }
    return fastjson.dumps(fields)


def decode_directly_result(data: bytes) -> ConsumeMessageDirectlyResult:
    """Read a consumer's answer to 309; clients in Go write the result as a number."""
    obj = json_fields.load_object(data)
    result = obj.get("consumeResult")
    if isinstance(result, int) and 0 <= result < len(_RESULTS):
        result = _RESULTS[result]
    return ConsumeMessageDirectlyResult(
        consume_result=json_fields.as_text(result, "consumeResult"),
        order=json_fields.flag(obj, "order"),
        auto_commit=json_fields.flag(obj, "autoCommit", True),
        remark=json_fields.text_or_none(obj, "remark"),
        spent_time_ms=json_fields.number(obj, "spentTimeMills"),
    )


def _connection_fields(one: ClientConnection) -> dict[str, object]:
    return {
        "clientAddr": one.client_addr,
        "clientId": one.client_id,
        "language": one.language,
        "version": one.version,
    }


def _connection_of(value: Any) -> ClientConnection:
    obj = json_fields.object_of(value, "a connection")
    return ClientConnection(
        client_id=json_fields.text(obj, "clientId"),
        client_addr=json_fields.text(obj, "clientAddr"),
        language=json_fields.text(obj, "language"),
        version=json_fields.number(obj, "version"),
    )


def _numbers(one: object, names: Mapping[str, str]) -> dict[str, object]:
    """Whole numbers as they are written."""
    return {name: getattr(one, attribute) for attribute, name in names.items()}


def _read_numbers(value: Any, names: Mapping[str, str]) -> dict[str, int]:
    """Whole numbers of a table of offsets, by attribute."""
    obj = json_fields.object_of(value, "offsetTable")
    return {attribute: json_fields.number(obj, name) for attribute, name in names.items()}


def _topic_offset_of(value: Any) -> TopicOffset:
    return TopicOffset(**_read_numbers(value, _TOPIC_OFFSET))


def _queue_progress_of(value: Any) -> QueueProgress:
    return QueueProgress(**_read_numbers(value, _QUEUE_PROGRESS))


def _span_fields(span: QueueTimeSpan, shown: Callable[[int], str]) -> dict[str, object]:
    return {
        "consumeTimeStamp": span.consume_time_stamp,
        "consumeTimeStampStr": shown(span.consume_time_stamp),
        "delayTime": span.delay_time,
        "maxTimeStamp": span.max_time_stamp,
        "maxTimeStampStr": shown(span.max_time_stamp),
        "messageQueue": json_fields.queue_fields(span.message_queue),
        "minTimeStamp": span.min_time_stamp,
        "minTimeStampStr": shown(span.min_time_stamp),
    }


def _span_of(value: Any) -> QueueTimeSpan:
    obj = json_fields.object_of(value, "consumeTimeSpanSet")
    return QueueTimeSpan(
        message_queue=json_fields.queue_of(obj.get("messageQueue")),
        min_time_stamp=json_fields.number(obj, "minTimeStamp"),
        max_time_stamp=json_fields.number(obj, "maxTimeStamp"),
        consume_time_stamp=json_fields.number(obj, "consumeTimeStamp"),
        delay_time=json_fields.number(obj, "delayTime"),
    )


def _process_queue_fields(one: ProcessQueueInfo) -> dict[str, object]:
    return {
        "cachedMsgCount": one.cached_msg_count,
        "cachedMsgMaxOffset": one.cached_msg_max_offset,
        "cachedMsgMinOffset": one.cached_msg_min_offset,
        "cachedMsgSizeInMiB": one.cached_msg_size_in_mib,
        "commitOffset": one.commit_offset,
        "droped": one.dropped,
        "lastConsumeTimestamp": one.last_consume_timestamp,
        "lastLockTimestamp": one.last_lock_timestamp,
        "lastPullTimestamp": one.last_pull_timestamp,
        "locked": one.locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": one.try_unlock_times,
    }


def _process_queue_of(value: Any) -> ProcessQueueInfo:
    obj = json_fields.object_of(value, "mqTable")
    return ProcessQueueInfo(
        commit_offset=json_fields.number(obj, "commitOffset"),
        cached_msg_min_offset=json_fields.number(obj, "cachedMsgMinOffset"),
        cached_msg_max_offset=json_fields.number(obj, "cachedMsgMaxOffset"),
        cached_msg_count=json_fields.number(obj, "cachedMsgCount"),
        cached_msg_size_in_mib=json_fields.number(obj, "cachedMsgSizeInMiB"),
        locked=json_fields.flag(obj, "locked"),
        try_unlock_times=json_fields.number(obj, "tryUnlockTimes"),
        last_lock_timestamp=json_fields.number(obj, "lastLockTimestamp"),
        dropped=json_fields.flag(obj, "droped") or json_fields.flag(obj, "dropped"),
        last_pull_timestamp=json_fields.number(obj, "lastPullTimestamp"),
        last_consume_timestamp=json_fields.number(obj, "lastConsumeTimestamp"),
    )


def _status_fields(one: TopicConsumeRates) -> dict[str, object]:
    return {
        "consumeFailedMsgs": one.consume_failed_msgs,
        "consumeFailedTPS": one.consume_failed_tps,
        "consumeOKTPS": one.consume_ok_tps,
        "consumeRT": one.consume_rt,
        "pullRT": one.pull_rt,
        "pullTPS": one.pull_tps,
    }


def _status_of(value: Any) -> TopicConsumeRates:
    obj = json_fields.object_of(value, "statusTable")
    return TopicConsumeRates(
        pull_rt=json_fields.real(obj, "pullRT"),
        pull_tps=json_fields.real(obj, "pullTPS"),
        consume_rt=json_fields.real(obj, "consumeRT"),
        consume_ok_tps=json_fields.real(obj, "consumeOKTPS"),
        consume_failed_tps=json_fields.real(obj, "consumeFailedTPS"),
        consume_failed_msgs=json_fields.number(obj, "consumeFailedMsgs"),
    )
