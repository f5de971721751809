"""What an admin says of consumer groups, and how it moves them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, ClientError, Message, MessageQueue, Producer, PushConsumer
from cometmq.errors import GroupNotFound, RouteNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt
    from cometmq.testing.cluster import LocalCluster


def send(cluster: LocalCluster, topic: str, *counts: int) -> list[MessageQueue]:
    """Send as many messages to each queue, from queue 0 on; return the queues."""
    with Producer("clerk", namesrv=cluster.namesrv) as producer:
        for queue_id, count in enumerate(counts):
            queue = MessageQueue(topic, "broker-a", queue_id)
            for number in range(count):
                producer.send(Message(topic, b"%d" % number), queue=queue)
    return [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(len(counts))]


def made(admin: Admin, group: str, queues: int = 2) -> str:
    """A topic and a group."""
    topic = f"for-{group}"
    admin.create_topic(topic, queues)
    admin.create_group(group)
    return topic


def lags(admin: Admin, group: str, topic: str) -> list[tuple[int | None, int | None]]:
    return [(one.committed, one.lag) for one in admin.group_lag(group, topic)]


def test_the_lag_of_a_queue_is_what_is_stored_and_not_committed(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = made(admin, group, 3)
    first, second, _ = send(cluster, topic, 5, 2, 1)
    assert lags(admin, group, topic) == [(None, None)] * 3, "nobody knows where it will start"
    admin.set_group_offsets(group, {first: 3, second: 0})
    assert lags(admin, group, topic) == [(3, 2), (0, 2), (None, None)]
    assert {one.queue.topic for one in admin.group_lag(group)} == {topic}
    assert [one.owner for one in admin.group_lag(group)] == [None] * 3


def test_the_lag_says_which_member_has_a_queue(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = made(admin, group)
    send(cluster, topic, 1, 1)
    seen: list[str] = []

    def handle(messages: Sequence[MessageExt]) -> None:
        seen.extend(one.msg_id for one in messages)

    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first")
    consumer.subscribe(topic, "*", handle)
    with consumer:
        until(lambda: len(seen) == 2)
        until(lambda: all(one.lag == 0 for one in admin.group_lag(group, topic)))
        (member,) = admin.group_members(group).members
        client_id = member.connection.client_id
        assert [one.owner for one in admin.group_lag(group, topic)] == [client_id] * 2
        assert [queue.queue_id for queue in member.queues if queue.topic == topic] == [0, 1]
        assert admin.member_info(group, client_id).properties["PROP_CONSUME_TYPE"]
        with pytest.raises(ClientError, match="is no connected member"):
            admin.member_info(group, "nobody")
        with pytest.raises(ClientError, match="has 1 members"):
            admin.delete_group(group)
        with pytest.raises(ClientError, match="has members"):
            admin.clone_group(group, group)
        assert topic in admin.group_members(group, running=False).subscriptions
        moves = admin.reset_group(group, topic, "earliest")
        assert [one.after for one in moves] == [0, 0]
        until(lambda: len(seen) == 4)  # a running group goes where it was moved


def test_unknown_groups_and_topics_are_errors_with_the_nearest_name(
    admin: Admin, group: str
) -> None:
    topic = made(admin, group)
    wrong = group + "xx"
    for ask in (
        admin.group_lag,
        admin.group_members,
        admin.group_config,
        admin.delete_group,
        lambda name: admin.reset_group(name, topic, "latest"),
        lambda name: admin.clone_group(name, "other"),
        lambda name: admin.alter_group(name, retry_max_times=3),
        lambda name: admin.committed_offsets([name]),
    ):
        with pytest.raises(GroupNotFound, match=f"knows the group {wrong}; did you mean "):
            ask(wrong)
    with pytest.raises(RouteNotFound, match=f"did you mean {topic}"):
        admin.group_lag(group, topic + "s")
    with pytest.raises(RouteNotFound, match=f"did you mean {topic}"):
        admin.reset_group(group, topic + "s", "latest")


def test_a_group_is_reset_to_a_place_a_time_or_an_offset(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = made(admin, group)
    queues = send(cluster, topic, 4, 1)
    before_ms = int(time.time() * 1000)
    time.sleep(0.002)
    send(cluster, topic, 2, 0)
    planned = admin.reset_group(group, topic, "latest", dry_run=True)
    assert [(one.queue, one.before, one.after) for one in planned] == [
        (queues[0], None, 6),
        (queues[1], None, 1),
    ]
    assert lags(admin, group, topic) == [(None, None)] * 2, "nothing has moved"
    for to, is_time, expected in (
        ("latest", False, [6, 1]),
        ("earliest", False, [0, 0]),
        (3, False, [3, 1]),
        (before_ms, True, [4, 1]),
    ):
        moves = admin.reset_group(group, topic, to, at_ms=is_time)
        assert [one.after for one in moves] == expected
        assert [one.committed for one in admin.group_lag(group, topic)] == expected
    for wrong in ("newest", -1, 1.5):
        with pytest.raises(ClientError, match="to is"):
            admin.reset_group(group, topic, wrong)  # type: ignore[arg-type]


def test_a_group_is_made_changed_and_deleted_with_its_offsets(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = made(admin, group)
    with pytest.raises(ClientError, match="exists on broker-a; change it"):
        admin.create_group(group)
    admin.alter_group(group, retry_max_times=3, consume_message_orderly=True)
    config = admin.group_config(group)["broker-a"]
    assert (config.retry_max_times, config.consume_message_orderly) == (3, True)
    admin.alter_group(group, consume_enable=False)
    config = admin.group_config(group)["broker-a"]
    assert (config.retry_max_times, config.consume_enable) == (3, False)
    with pytest.raises(ClientError, match="nothing of the group"):
        admin.alter_group(group)
    with pytest.raises(ClientError, match="no setting 'retries'"):
        admin.alter_group(group, retries=3)  # type: ignore[call-arg]
    admin.set_group_offsets(group, {MessageQueue(topic, "broker-a", 0): 0})
    assert admin.delete_group(group) == ["broker-a"]
    assert group not in admin.groups()
    assert group not in admin.committed_offsets()


def test_a_group_is_cloned_and_its_offsets_are_exported_and_restored(
    cluster: LocalCluster, admin: Admin, group: str
) -> None:
    topic = made(admin, group)
    first, second = send(cluster, topic, 5, 3)
    admin.set_group_offsets(group, {first: 4, second: 2})
    for target, given in ((f"{group}-copy", topic), (f"{group}-of-all", None)):
        admin.clone_group(group, target, given)
        assert lags(admin, target, topic) == [(4, 1), (2, 1)]
    kept = admin.committed_offsets([group])
    assert kept == {group: {first: 4, second: 2}}
    gone = MessageQueue(f"never-{topic}", "broker-a", 0)
    restored = admin.restore_offsets({f"{group}-again": {**kept[group], gone: 7}})
    assert [(one.queue, one.before, one.after) for one in restored[f"{group}-again"]] == [
        (first, None, 4),
        (second, None, 2),
    ]
    assert lags(admin, f"{group}-again", topic) == [(4, 1), (2, 1)]
    assert admin.restore_offsets({group: {first: 99}}, dry_run=True)[group][0].after == 5
    assert admin.committed_offsets([group]) == kept
