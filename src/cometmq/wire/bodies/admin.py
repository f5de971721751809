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
from cometmq.wire.bodies import json_fields as shape
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
    obj = shape.load_object(data)
    first = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumerConnections(
        shape.items(obj, "connectionSet", _connection_of),
        shape.table(obj, "subscriptionTable", subscription_of),
        shape.member(obj, "consumeType", ConsumeType.CONSUME_PASSIVELY),
        shape.member(obj, "messageModel", MessageModel.CLUSTERING),
        shape.member(obj, "consumeFromWhere", first),
    )


def encode_producer_connections(connections: Iterable[ClientConnection]) -> bytes:
    """Write the answer to 204."""
    return fastjson.dumps({"connectionSet": [_connection_fields(one) for one in connections]})


def decode_producer_connections(data: bytes) -> list[ClientConnection]:
    """Read the answer to 204."""
    return shape.items(shape.load_object(data), "connectionSet", _connection_of)


def encode_topic_stats(offsets: Mapping[MessageQueue, TopicOffset], put_tps: float = 0.0) -> bytes:
    """Write the answer to 202."""
    table = {queue: _topic_offset_fields(one) for queue, one in offsets.items()}
    return fastjson.dumps({"offsetTable": shape.queue_keys(table), "topicPutTps": put_tps})


def topic_offset_entry(queue: MessageQueue, one: TopicOffset) -> bytes:
    """One entry of the table in that answer."""
    return _queue_entry(queue, _topic_offset_fields(one))


def decode_topic_stats(data: bytes) -> dict[MessageQueue, TopicOffset]:
    """Read the answer to 202."""
    return shape.queue_table(shape.load_object(data), "offsetTable", _topic_offset_of)


def encode_consume_stats(stats: ConsumeStats) -> bytes:
    """Write the answer to 208."""
    return fastjson.dumps(consume_stats_fields(stats))


def consume_stats_fields(stats: ConsumeStats) -> dict[str, object]:
    """Return a group's progress as it is written."""
    table = {queue: _queue_progress_fields(one) for queue, one in stats.offset_table.items()}
    return {"consumeTps": stats.consume_tps, "offsetTable": shape.queue_keys(table)}


def queue_progress_entry(queue: MessageQueue, one: QueueProgress) -> bytes:
    """One entry of the table in that answer."""
    return _queue_entry(queue, _queue_progress_fields(one))


def decode_consume_stats(data: bytes) -> ConsumeStats:
    """Read the answer to 208."""
    obj = shape.load_object(data)
    return ConsumeStats(
        offset_table=shape.queue_table(obj, "offsetTable", _queue_progress_of),
        consume_tps=shape.real(obj, "consumeTps"),
    )


def encode_time_spans(spans: Iterable[QueueTimeSpan], shown: Callable[[int], str]) -> bytes:
    """Write the answer to 303; `shown` writes a time out as people read it."""
    return fastjson.dumps({"consumeTimeSpanSet": [_span_fields(span, shown) for span in spans]})


def time_span_entry(span: QueueTimeSpan, shown: Callable[[int], str]) -> bytes:
    """One item of the list in that answer."""
    return fastjson.dumps(_span_fields(span, shown))


def decode_time_spans(data: bytes) -> list[QueueTimeSpan]:
    """Read the answer to 303."""
    return shape.items(shape.load_object(data), "consumeTimeSpanSet", _span_of)


def encode_running_info(info: ConsumerRunningInfo) -> bytes:
    """Write a consumer's answer to 307."""
    queues = {queue: _process_queue_fields(one) for queue, one in info.mq_table.items()}
    fields = {
        "jstack": info.jstack,
        "mqPopTable": {},
        "mqTable": shape.queue_keys(queues),
        "properties": info.properties,
        "statusTable": {topic: _status_fields(one) for topic, one in info.status_table.items()},
        "subscriptionSet": [subscription_fields(sub) for sub in info.subscriptions],
        "userConsumerInfo": {},
    }
    return fastjson.dumps(fields)


def decode_running_info(data: bytes) -> ConsumerRunningInfo:
    """Read a consumer's answer to 307."""
    obj = shape.load_object(data)
    return ConsumerRunningInfo(
        properties=shape.text_table(obj, "properties"),
        subscriptions=tuple(shape.items(obj, "subscriptionSet", subscription_of)),
        mq_table=shape.queue_table(obj, "mqTable", _process_queue_of),
        status_table=shape.table(obj, "statusTable", _status_of),
        jstack=shape.text_or_none(obj, "jstack"),
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
    obj = shape.load_object(data)
    result = obj.get("consumeResult")
    if isinstance(result, int) and 0 <= result < len(_RESULTS):
        result = _RESULTS[result]
    return ConsumeMessageDirectlyResult(
        consume_result=shape.as_text(result, "consumeResult"),
        order=shape.flag(obj, "order"),
        auto_commit=shape.flag(obj, "autoCommit", True),
        remark=shape.text_or_none(obj, "remark"),
        spent_time_ms=shape.number(obj, "spentTimeMills"),
    )


def _queue_entry(queue: MessageQueue, fields: object) -> bytes:
    return fastjson.dumps(shape.queue_keys({queue: fields}))[1:-1]


def _topic_offset_fields(one: TopicOffset) -> dict[str, object]:
    return {
        "lastUpdateTimestamp": one.last_update_timestamp,
        "maxOffset": one.max_offset,
        "minOffset": one.min_offset,
    }


def _queue_progress_fields(one: QueueProgress) -> dict[str, object]:
    return {
        "brokerOffset": one.broker_offset,
        "consumerOffset": one.consumer_offset,
        "lastTimestamp": one.last_timestamp,
        "pullOffset": one.pull_offset,
    }


def _connection_fields(one: ClientConnection) -> dict[str, object]:
    return {
        "clientAddr": one.client_addr,
        "clientId": one.client_id,
        "language": one.language,
        "version": one.version,
    }


def _connection_of(value: Any) -> ClientConnection:
    obj = shape.object_of(value, "a connection")
    return ClientConnection(
        client_id=shape.text(obj, "clientId"),
        client_addr=shape.text(obj, "clientAddr"),
        language=shape.text(obj, "language"),
        version=shape.number(obj, "version"),
    )


def _topic_offset_of(value: Any) -> TopicOffset:
    obj = shape.object_of(value, "offsetTable")
    return TopicOffset(
        min_offset=shape.number(obj, "minOffset"),
        max_offset=shape.number(obj, "maxOffset"),
        last_update_timestamp=shape.number(obj, "lastUpdateTimestamp"),
    )


def _queue_progress_of(value: Any) -> QueueProgress:
    obj = shape.object_of(value, "offsetTable")
    return QueueProgress(
        broker_offset=shape.number(obj, "brokerOffset"),
        consumer_offset=shape.number(obj, "consumerOffset"),
        pull_offset=shape.number(obj, "pullOffset"),
        last_timestamp=shape.number(obj, "lastTimestamp"),
    )


def _span_fields(span: QueueTimeSpan, shown: Callable[[int], str]) -> dict[str, object]:
    return {
        "consumeTimeStamp": span.consume_time_stamp,
        "consumeTimeStampStr": shown(span.consume_time_stamp),
        "delayTime": span.delay_time,
        "maxTimeStamp": span.max_time_stamp,
        "maxTimeStampStr": shown(span.max_time_stamp),
        "messageQueue": shape.queue_fields(span.message_queue),
        "minTimeStamp": span.min_time_stamp,
        "minTimeStampStr": shown(span.min_time_stamp),
    }


def _span_of(value: Any) -> QueueTimeSpan:
    obj = shape.object_of(value, "consumeTimeSpanSet")
    return QueueTimeSpan(
        message_queue=shape.queue_of(obj.get("messageQueue")),
        min_time_stamp=shape.number(obj, "minTimeStamp"),
        max_time_stamp=shape.number(obj, "maxTimeStamp"),
        consume_time_stamp=shape.number(obj, "consumeTimeStamp"),
        delay_time=shape.number(obj, "delayTime"),
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
    obj = shape.object_of(value, "mqTable")
    return ProcessQueueInfo(
        commit_offset=shape.number(obj, "commitOffset"),
        cached_msg_min_offset=shape.number(obj, "cachedMsgMinOffset"),
        cached_msg_max_offset=shape.number(obj, "cachedMsgMaxOffset"),
        cached_msg_count=shape.number(obj, "cachedMsgCount"),
        cached_msg_size_in_mib=shape.number(obj, "cachedMsgSizeInMiB"),
        locked=shape.flag(obj, "locked"),
        try_unlock_times=shape.number(obj, "tryUnlockTimes"),
        last_lock_timestamp=shape.number(obj, "lastLockTimestamp"),
        dropped=shape.flag(obj, "droped") or shape.flag(obj, "dropped"),
        last_pull_timestamp=shape.number(obj, "lastPullTimestamp"),
        last_consume_timestamp=shape.number(obj, "lastConsumeTimestamp"),
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
    obj = shape.object_of(value, "statusTable")
    return TopicConsumeRates(
        pull_rt=shape.real(obj, "pullRT"),
        pull_tps=shape.real(obj, "pullTPS"),
        consume_rt=shape.real(obj, "consumeRT"),
        consume_ok_tps=shape.real(obj, "consumeOKTPS"),
        consume_failed_tps=shape.real(obj, "consumeFailedTPS"),
        consume_failed_msgs=shape.number(obj, "consumeFailedMsgs"),
    )
