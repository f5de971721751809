"""How two members of a consumer group differ: in words, for logs and for the doctor.

Owns what members must have in common, and the sentences about it. Pure.
Java: none; there the newest heartbeat overwrites the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.model.topic import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.subscription import (
        ConsumeFromWhere,
        ConsumerData,
        ConsumeType,
        MessageModel,
        SubscriptionData,
    )

WHY = "a queue is read by one member alone, so messages that it does not want are lost to the group"
ADVICE = "give all members the same subscriptions and settings, or each kind a group of its own"

_TOPICS_MAX = 4
"""Topics that one sentence names."""
_CHARS_MAX = 80
_ORDERLY = {"true": True, "false": False}


class MemberSettings(NamedTuple):
    """What all members of a group must have in common; None stands for what is not known."""

    subscriptions: frozenset[tuple[str, str, str]]
    """Topic, kind of filter, and filter; tags in order of the alphabet."""
    message_model: MessageModel | None = None
    consume_type: ConsumeType | None = None
    consume_from: ConsumeFromWhere | None = None
    is_orderly: bool | None = None


def settings_in_heartbeat(data: ConsumerData) -> MemberSettings:
    """What a heartbeat says; whether its member consumes in order is not among it."""
    return MemberSettings(
        filters_of(data.subscriptions),
        data.message_model,
        data.consume_type,
        data.consume_from_where,
    )


def settings_in_running_info(info: ConsumerRunningInfo) -> MemberSettings:
    """What a member answers when it is asked what it does (request 307)."""
    is_orderly = _ORDERLY.get(info.properties.get("PROP_CONSUMEORDERLY", "").lower())
    return MemberSettings(filters_of(info.subscriptions), is_orderly=is_orderly)


def filters_of(subscriptions: Iterable[SubscriptionData]) -> frozenset[tuple[str, str, str]]:
    """Subscriptions by what they let through; the group's retry topic is left out."""
    return frozenset(
        (one.topic, one.expression_type, _filter(one))
        for one in subscriptions
        if not is_retry_topic(one.topic)
    )


def difference(one_id: str, one: MemberSettings, other_id: str, other: MemberSettings) -> str:
    """How two members differ, naming both; empty where they do not."""
    return "; ".join(_differences(one_id, one, other_id, other))


def _differences(
    one_id: str, one: MemberSettings, other_id: str, other: MemberSettings
) -> Iterator[str]:
    topics = sorted({topic for topic, _, _ in one.subscriptions ^ other.subscriptions})
    for topic in topics[:_TOPICS_MAX]:
        mine, theirs = _wanted(one, topic), _wanted(other, topic)
        yield f"of topic {topic} {one_id} wants {mine}, {other_id} {theirs}"
    if len(topics) > _TOPICS_MAX:
        yield f"and {len(topics) - _TOPICS_MAX} topics more"
    if one.is_orderly is not None and other.is_orderly is not None:
        words = ("concurrently", "in order")
        if one.is_orderly != other.is_orderly:
            mine, theirs = words[one.is_orderly], words[other.is_orderly]
            yield f"{one_id} consumes {mine}, {other_id} {theirs}"
    for mine_known, theirs_known in (
        (one.message_model, other.message_model),
        (one.consume_type, other.consume_type),
        (one.consume_from, other.consume_from),
    ):
        if mine_known is not None and theirs_known is not None and mine_known != theirs_known:
            yield f"{one_id} is {mine_known}, {other_id} {theirs_known}"


def _filter(subscription: SubscriptionData) -> str:
    if subscription.tags_set:
        return " || ".join(sorted(subscription.tags_set))
    return subscription.sub_string.strip()


def _wanted(member: MemberSettings, topic: str) -> str:
    found = [f"{text[:_CHARS_MAX]!r}" for name, _, text in member.subscriptions if name == topic]
    return " and ".join(sorted(found)) or "nothing"
