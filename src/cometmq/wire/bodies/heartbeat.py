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
from cometmq.wire.bodies import json_fields
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
    obj = json_fields.load_object(data)
    producers = json_fields.items(obj, "producerDataSet", _group_name)
    without_sub = json_fields.flag(obj, "withoutSub") or json_fields.flag(obj, "isWithoutSub")
    return HeartbeatData(
        client_id=json_fields.text(obj, "clientID"),
        producer_groups=tuple(producers),
        consumers=tuple(json_fields.items(obj, "consumerDataSet", _consumer_of)),
        heartbeat_fingerprint=json_fields.number(obj, "heartbeatFingerprint"),
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
    obj = json_fields.load_request(data)
    wanted = obj.get("subscriptionData")
    return CheckClient(
        json_fields.text(obj, "clientId"),
        json_fields.text(obj, "group"),
        SubscriptionData(topic="") if wanted is None else subscription_of(wanted),
        json_fields.text_or_none(obj, "namespace"),
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
    obj = json_fields.object_of(value, "a subscription")
    codes = json_fields.items(obj, "codeSet", lambda code: json_fields.as_number(code, "codeSet"))
    return SubscriptionData(
        topic=json_fields.text(obj, "topic"),
        sub_string=json_fields.text(obj, "subString", ALL),
        tags_set=frozenset(json_fields.texts(obj, "tagsSet")),
        code_set=frozenset(codes),
        sub_version=json_fields.number(obj, "subVersion"),
        expression_type=json_fields.text(obj, "expressionType", TAG),
        class_filter_mode=json_fields.flag(obj, "classFilterMode"),
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
    obj = json_fields.object_of(value, "consumerDataSet")
    first = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumerData(
        group_name=json_fields.text(obj, "groupName"),
        consume_type=json_fields.member(obj, "consumeType", ConsumeType.CONSUME_PASSIVELY),
        message_model=json_fields.member(obj, "messageModel", MessageModel.CLUSTERING),
        consume_from_where=json_fields.member(obj, "consumeFromWhere", first),
        subscriptions=tuple(json_fields.items(obj, "subscriptionDataSet", subscription_of)),
        unit_mode=json_fields.flag(obj, "unitMode"),
    )


def _group_name(value: Any) -> str:
    return json_fields.text(json_fields.object_of(value, "producerDataSet"), "groupName")
