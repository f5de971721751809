"""The check of a pull: which are refused, with which codes, and which messages the others want."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from broker.memory_state import memory_state
from cometmq.broker.pulls.pull_check import ForbiddenType, PullCheck, PullForbidden, ReadPlan
from cometmq.errors import Reject
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import PERM_WRITE, TopicConfig
from cometmq.settings.broker import BrokerSettings
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import SUBSCRIPTION, PullMessageRequestHeader
from cometmq.wire.java_hash import java_hash

GROUP = SubscriptionGroupConfig(group_name="G")
TOPIC = TopicConfig(topic_name="T", read_queue_nums=4)


def pull(**more: Any) -> PullMessageRequestHeader:
    fields = {
        "consumer_group": "G",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        **more,
    }
    return PullMessageRequestHeader(**fields)


def checked(
    header: PullMessageRequestHeader,
    *,
    code: int = RequestCode.PULL_MESSAGE,
    group: SubscriptionGroupConfig = GROUP,
    topic: TopicConfig = TOPIC,
    **settings: Any,
) -> ReadPlan | Reject:
    """What the check of this pull says: its plan, or why it is refused."""

    async def check() -> ReadPlan | Reject:
        state, store = memory_state(**settings)
        state.topics.put(topic)
        state.groups.put(group)
        check = PullCheck(
            state.topics, state.groups, state.clients, state.filters, BrokerSettings(**settings)
        )
        try:
            return check.check(header, code)
        except Reject as refusal:
            return refusal
        finally:
            await store.stop()

    return asyncio.run(check())


def forbidden(refusal: ReadPlan | Reject) -> ForbiddenType:
    assert isinstance(refusal, PullForbidden)
    assert refusal.code == ResponseCode.NO_PERMISSION
    return refusal.forbidden_type


def test_a_pull_of_a_known_topic_and_group_wants_every_message() -> None:
    plan = checked(pull(subscription="*"))
    assert isinstance(plan, ReadPlan)
    assert (plan.topic, plan.group) == (TOPIC, GROUP)
    assert plan.message_filter == (None, None)


def test_tags_in_the_header_choose_messages_by_their_hash() -> None:
    plan = checked(pull(subscription="A || B"))
    assert isinstance(plan, ReadPlan)
    matches = plan.message_filter.matches_tags_code
    assert matches is not None
    assert [bool(matches(java_hash(tag))) for tag in ("A", "B", "C")] == [True, True, False]


def test_a_broker_that_may_not_be_read_forbids_every_pull() -> None:
    refusal = checked(pull(), broker_permission=PERM_WRITE)
    assert forbidden(refusal) is ForbiddenType.BROKER_FORBIDDEN


def test_lite_pulls_are_refused_where_a_setting_forbids_them() -> None:
    lite = RequestCode.LITE_PULL_MESSAGE
    refusal = checked(pull(), code=lite, lite_pull_message_enable=False)
    assert forbidden(refusal) is ForbiddenType.BROKER_FORBIDDEN
    assert isinstance(checked(pull(), code=lite), ReadPlan)


def test_a_group_that_may_not_consume_is_refused() -> None:
    refusal = checked(pull(), group=replace(GROUP, consume_enable=False))
    assert forbidden(refusal) is ForbiddenType.GROUP_FORBIDDEN


def test_a_topic_that_may_not_be_read_is_refused() -> None:
    refusal = checked(pull(), topic=replace(TOPIC, perm=PERM_WRITE))
    assert forbidden(refusal) is ForbiddenType.TOPIC_FORBIDDEN


def test_a_topic_that_is_not_there_is_refused() -> None:
    refusal = checked(pull(topic="Other"))
    assert isinstance(refusal, Reject)
    assert refusal.code == ResponseCode.TOPIC_NOT_EXIST


def test_only_queues_of_the_topic_may_be_read() -> None:
    assert isinstance(checked(pull(queue_id=3)), ReadPlan)
    for queue_id in (-1, 4):
        refusal = checked(pull(queue_id=queue_id))
        assert isinstance(refusal, Reject)
        assert refusal.code == ResponseCode.INVALID_PARAMETER


def test_a_pull_without_a_subscription_needs_a_consumer_that_is_connected() -> None:
    refusal = checked(pull(sys_flag=0))
    assert isinstance(refusal, Reject)
    assert refusal.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_an_expression_needs_filtering_by_properties() -> None:
    refusal = checked(pull(subscription="n > 1", expression_type="SQL92"))
    assert isinstance(refusal, Reject)
    plan = checked(pull(subscription="n > 1", expression_type="SQL92"), enable_property_filter=True)
    assert isinstance(plan, ReadPlan)
    assert plan.message_filter.new_property_filter is not None
