"""Bodies about consumer groups: one group (200, 352), a broker's table (201).

Java: SubscriptionGroupConfig, SubscriptionGroupWrapper, SubscriptionGroupList.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.model.group import GroupRetryPolicy, SubscriptionGroupConfig
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.topic import version_fields, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.model.topic import DataVersion


class GroupTable(NamedTuple):
    """A broker's consumer groups by name, the version of that table, and what is forbidden."""

    version: DataVersion
    groups: dict[str, SubscriptionGroupConfig]
    forbidden: dict[str, dict[str, int]]


def encode_group_config(config: SubscriptionGroupConfig) -> bytes:
    """Write one group."""
    return fastjson.dumps(group_fields(config))


def decode_group_config(data: bytes) -> SubscriptionGroupConfig:
    """Read one group."""
    return group_of(fastjson.loads(data))


def encode_group_config_list(configs: Iterable[SubscriptionGroupConfig]) -> bytes:
    """Write the groups to create (225)."""
    return fastjson.dumps({"groupConfigList": [group_fields(config) for config in configs]})


def decode_group_config_list(data: bytes) -> list[SubscriptionGroupConfig]:
    """Read the groups to create (225)."""
    return json_fields.items(json_fields.load_request(data), "groupConfigList", group_of)


def encode_group_table(table: GroupTable) -> bytes:
    """Write a broker's groups (201)."""
    fields = {
        "dataVersion": version_fields(table.version),
        "forbiddenTable": table.forbidden,
        "subscriptionGroupTable": {
            name: group_fields(config) for name, config in table.groups.items()
        },
    }
    return fastjson.dumps(fields)


def decode_group_table(data: bytes) -> GroupTable:
    """Read a broker's groups (201)."""
    return group_table_of(json_fields.load_object(data))


def group_table_of(obj: json_fields.Json) -> GroupTable:
    """Read a broker's groups as 201 and subscriptionGroup.json have them."""
    configs = json_fields.object_of(obj.get("subscriptionGroupTable"), "subscriptionGroupTable")
    return GroupTable(
        version_of(obj.get("dataVersion")),
        {name: group_of(value, name) for name, value in configs.items()},
        json_fields.table(obj, "forbiddenTable", _numbers),
    )


def group_fields(config: SubscriptionGroupConfig) -> dict[str, object]:
    """Return a group as it is written."""
    return {
        "attributes": config.attributes,
        "brokerId": config.broker_id,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "groupName": config.group_name,
        "groupRetryPolicy": _policy_fields(config.group_retry_policy),
        "groupSysFlag": config.group_sys_flag,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "retryMaxTimes": config.retry_max_times,
        "retryQueueNums": config.retry_queue_nums,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
    }


def group_of(value: Any, name: str = "") -> SubscriptionGroupConfig:
    """Read a group; `name` stands in where it carries none."""
    obj = json_fields.object_of(value, "a consumer group")
    return SubscriptionGroupConfig(
        group_name=json_fields.text(obj, "groupName", name),
        consume_enable=json_fields.flag(obj, "consumeEnable", True),
        consume_from_min_enable=json_fields.flag(obj, "consumeFromMinEnable", True),
        consume_broadcast_enable=json_fields.flag(obj, "consumeBroadcastEnable", True),
        consume_message_orderly=json_fields.flag(obj, "consumeMessageOrderly"),
        retry_queue_nums=json_fields.number(obj, "retryQueueNums", 1),
        retry_max_times=json_fields.number(obj, "retryMaxTimes", 16),
        group_retry_policy=_policy_of(obj.get("groupRetryPolicy")),
        broker_id=json_fields.number(obj, "brokerId"),
        which_broker_when_consume_slowly=json_fields.number(obj, "whichBrokerWhenConsumeSlowly", 1),
        notify_consumer_ids_changed_enable=json_fields.flag(
            obj, "notifyConsumerIdsChangedEnable", True
        ),
        group_sys_flag=json_fields.number(obj, "groupSysFlag"),
        consume_timeout_minute=json_fields.number(obj, "consumeTimeoutMinute", 15),
        attributes=json_fields.text_table(obj, "attributes"),
    )


def _policy_fields(policy: GroupRetryPolicy) -> dict[str, object]:
    exponential, customized = None, None
    if policy.type == "EXPONENTIAL":
        exponential = {
            "initial": policy.initial_ms,
            "max": policy.max_ms,
            "multiplier": policy.multiplier,
        }
    elif policy.next_ms is not None:
        customized = {"next": list(policy.next_ms)}
    return {
        "customizedRetryPolicy": customized,
        "exponentialRetryPolicy": exponential,
        "type": policy.type,
    }


def _policy_of(value: Any) -> GroupRetryPolicy:
    obj, default = json_fields.object_of(value, "groupRetryPolicy"), GroupRetryPolicy()
    customized = json_fields.object_of(obj.get("customizedRetryPolicy"), "customizedRetryPolicy")
    exponential = json_fields.object_of(obj.get("exponentialRetryPolicy"), "exponentialRetryPolicy")
    steps = json_fields.items(customized, "next", lambda step: json_fields.as_number(step, "next"))
    return GroupRetryPolicy(
        type=json_fields.text(obj, "type", default.type).upper(),
        next_ms=tuple(steps) or None,
        initial_ms=json_fields.number(exponential, "initial", default.initial_ms),
        max_ms=json_fields.number(exponential, "max", default.max_ms),
        multiplier=json_fields.number(exponential, "multiplier", default.multiplier),
    )


def _numbers(value: Any) -> dict[str, int]:
    obj = json_fields.object_of(value, "forbiddenTable")
    return {name: json_fields.number(obj, name) for name in obj}
