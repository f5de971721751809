"""Bodies by which clients tell brokers about themselves: heartbeat (34), filter check (46).

Java: HeartbeatData, ConsumerData, SubscriptionData, CheckClientRequestBody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from cometmq.model.subscription import (
    ALL,
    TAG,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields as shape
from cometmq.wire.java_hash import java_hash


class CheckClient(NamedTuple):
    """A client asks whether the broker takes its filter."""

    client_id: str
    group: str
    subscription: SubscriptionData
    namespace: str | None = None


def encode_heartbeat(beat: HeartbeatData) -> bytes:
    """Write a heartbeat."""
    return fastjson.dumps(_beat_fields(beat))


def decode_heartbeat(data: bytes) -> HeartbeatData:
    """Read a heartbeat; clients that know neither fingerprint nor withoutSub omit both."""
    obj = shape.load_object(data)
    producers = shape.items(obj, "producerDataSet", _group_name)
    without_sub = shape.flag(obj, "withoutSub") or shape.flag(obj, "isWithoutSub")
    return HeartbeatData(
        client_id=shape.text(obj, "clientID"),
        producer_groups=tuple(producers),
        consumers=tuple(shape.items(obj, "consumerDataSet", _consumer_of)),
        heartbeat_fingerprint=shape.number(obj, "heartbeatFingerprint"),
        without_sub=without_sub,
    )


def heartbeat_fingerprint(beat: HeartbeatData) -> int:
    """Return the number that stays the same while the client wants the same."""
    consumers = tuple(
        replace(
            consumer,
            subscriptions=tuple(replace(sub, sub_version=0) for sub in consumer.subscriptions),
        )
        for consumer in beat.consumers
    )
    bare = replace(
        beat, client_id="", consumers=consumers, heartbeat_fingerprint=0, without_sub=False
    )
    return java_hash(encode_heartbeat(bare).decode())


def encode_check_client(check: CheckClient) -> bytes:
    """Write the question about a filter."""
    fields = {
        "clientId": check.client_id,
        "group": check.group,
        "namespace": check.namespace,
        "subscriptionData": subscription_fields(check.subscription),
    }
    return fastjson.dumps(fields)


def decode_check_client(data: bytes) -> CheckClient:
    """Read the question about a filter; one that names none is about no filter at all."""
    obj = shape.load_request(data)
    wanted = obj.get("subscriptionData")
    return CheckClient(
        shape.text(obj, "clientId"),
        shape.text(obj, "group"),
        SubscriptionData(topic="") if wanted is None else subscription_of(wanted),
        shape.text_or_none(obj, "namespace"),
    )


def subscription_fields(sub: SubscriptionData) -> dict[str, object]:
    """Return a subscription as it is written."""
    return {
        "classFilterMode": sub.class_filter_mode,
        "codeSet": sorted(sub.code_set),
        "expressionType": sub.expression_type,
        "subString": sub.sub_string,
        "subVersion": sub.sub_version,
        "tagsSet": sorted(sub.tags_set),
        "topic": sub.topic,
    }


def subscription_of(value: Any) -> SubscriptionData:
    """Read a subscription."""
    obj = shape.object_of(value, "a subscription")
    codes = shape.items(obj, "codeSet", lambda code: shape.as_number(code, "codeSet"))
    return SubscriptionData(
        topic=shape.text(obj, "topic"),
        sub_string=shape.text(obj, "subString", ALL),
        tags_set=frozenset(shape.texts(obj, "tagsSet")),
        code_set=frozenset(codes),
        sub_version=shape.number(obj, "subVersion"),
        expression_type=shape.text(obj, "expressionType", TAG),
        class_filter_mode=shape.flag(obj, "classFilterMode"),
    )


def _beat_fields(beat: HeartbeatData) -> dict[str, object]:
    return {
        "clientID": beat.client_id,
        "consumerDataSet": [_consumer_fields(consumer) for consumer in beat.consumers],
        "heartbeatFingerprint": beat.heartbeat_fingerprint,
        "producerDataSet": [{"groupName": group} for group in beat.producer_groups],
        "withoutSub": beat.without_sub,
    }


def _consumer_fields(consumer: ConsumerData) -> dict[str, object]:
    return {
        "consumeFromWhere": consumer.consume_from_where,
        "consumeType": consumer.consume_type,
        "groupName": consumer.group_name,
        "messageModel": consumer.message_model,
        "subscriptionDataSet": [subscription_fields(sub) for sub in consumer.subscriptions],
        "unitMode": consumer.unit_mode,
    }


def _consumer_of(value: Any) -> ConsumerData:
    obj = shape.object_of(value, "consumerDataSet")
    first = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumerData(
        group_name=shape.text(obj, "groupName"),
        consume_type=shape.member(obj, "consumeType", ConsumeType.CONSUME_PASSIVELY),
        message_model=shape.member(obj, "messageModel", MessageModel.CLUSTERING),
        consume_from_where=shape.member(obj, "consumeFromWhere", first),
        subscriptions=tuple(shape.items(obj, "subscriptionDataSet", subscription_of)),
        unit_mode=shape.flag(obj, "unitMode"),
    )


def _group_name(value: Any) -> str:
    return shape.text(shape.object_of(value, "producerDataSet"), "groupName")
