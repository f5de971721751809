"""What consumers promise, on our broker and on Apache RocketMQ's: one sentence a test."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    ConsumeFrom,
    ConsumeStatus,
    LitePullConsumer,
    Message,
    MessageSelector,
    Producer,
    PullStatus,
    RetryLater,
)
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.bodies.admin import decode_directly_result, decode_running_info
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import ResetOffsetRequestHeader
from cometmq.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from parity.clients import (
    Seen,
    consumer,
    lite,
    only_queue,
    own,
    polled,
    send,
    send_around,
    send_in_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq import MessageExt
    from parity.conftest import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
COUNT = 60


def test_members_of_a_group_share_the_messages(cluster: Cluster, topic: str, group: str) -> None:
    one, other = Seen(), Seen()
    with (
        consumer(cluster, group, topic, one) as first,
        consumer(cluster, group, topic, other) as last,
    ):
        until(lambda: [len(own(one, topic)) for one in (first, last)] == [2, 2])
        assert not own(first, topic) & own(last, topic)
        send_in_order(cluster, topic, range(COUNT), keys=20)
        until(lambda: len(one.messages) + len(other.messages) >= COUNT)
    assert set(one.numbers) | set(other.numbers) == set(range(COUNT))
    assert one.numbers
    assert other.numbers


def test_broadcasting_gives_every_member_every_message(
    cluster: Cluster, topic: str, group: str, tmp_path: object
) -> None:
    send(cluster, topic, range(COUNT))
    one, other = Seen(), Seen()
    more = {"broadcasting": True, "offsets_dir": tmp_path}
    with (
        consumer(cluster, group, topic, one, instance_name="one", **more),
        consumer(cluster, group, topic, other, instance_name="other", **more),
    ):
        one.wait(COUNT)
        other.wait(COUNT)
    assert Counter(one.numbers) == Counter(other.numbers) == Counter(range(COUNT))
    again = Seen()
    send(cluster, topic, [COUNT])
    with consumer(cluster, group, topic, again, instance_name="one", **more):
        again.wait(1)
    assert again.numbers == [COUNT]


def test_a_group_goes_on_where_it_committed(cluster: Cluster, topic: str, group: str) -> None:
    send(cluster, topic, range(COUNT))
    seen = Seen()
    with consumer(cluster, group, topic, seen):
        seen.wait(COUNT)
    send(cluster, topic, range(COUNT, COUNT + 5))
    again = Seen()
    with consumer(cluster, group, topic, again):
        again.wait(5)
    assert sorted(again.numbers) == list(range(COUNT, COUNT + 5))


def test_from_last_a_new_group_of_a_young_topic_misses_nothing(
    cluster: Cluster, topic: str, group: str
) -> None:
    send(cluster, topic, range(10))
    seen = Seen()
    with consumer(cluster, group, topic, seen, consume_from=ConsumeFrom.LAST):
        seen.wait(10)
    assert sorted(seen.numbers) == list(range(10))


def test_from_a_time_a_new_group_begins_there(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    middle_ms = send_around(cluster, topic)
    seen = Seen()
    settings = {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": middle_ms}
    with consumer(cluster, group, topic, seen, **settings):
        seen.wait(10)
    assert sorted(seen.numbers) == list(range(10, 20))


def test_tags_choose_messages(cluster: Cluster, topic: str, group: str) -> None:
    for tag, numbers in (("red", range(10)), ("blue", range(10, 20)), ("AaAa", range(20, 30))):
        send(cluster, topic, numbers, tags=tag)
    send(cluster, topic, range(30, 40), tags="BBBB")  # the same hash as AaAa
    seen = Seen()
    with consumer(cluster, group, topic, seen, "blue || AaAa"):
        seen.wait(20)
        time.sleep(0.5)
    assert sorted(seen.numbers) == list(range(10, 30))


def test_a_condition_in_sql_chooses_messages(cluster: Cluster, topic: str, group: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for n in range(20):
            pairs = {"price": str(n), "colour": "red" if n % 2 else "blue"}
            producer.send(Message(topic, str(n).encode(), properties=pairs))
    seen = Seen()
    selector = MessageSelector.by_sql("price BETWEEN 5 AND 14 AND colour = 'red'")
    with consumer(cluster, group, topic, seen, selector):
        seen.wait(5)
        time.sleep(0.5)
    assert sorted(seen.numbers) == [5, 7, 9, 11, 13]


def test_a_condition_that_cannot_be_read_is_refused_at_the_start(
    cluster: Cluster, topic: str, group: str
) -> None:
    made = consumer(cluster, group, topic, Seen(), MessageSelector.by_sql("price >"))
    with pytest.raises(Exception, match="price >"):
        made.start()


def test_a_failed_message_comes_again_by_the_retry_topic(
    cluster: Cluster, topic: str, group: str
) -> None:
    send(cluster, topic, range(6))
    tries: dict[int, list[int]] = defaultdict(list)

    def fail_twice(messages: Sequence[MessageExt]) -> None:
        for message in messages:
            tries[int(message.body)].append(message.reconsume_times)
            assert message.topic == topic
            if message.reconsume_times < 2:
                raise RetryLater(delay_level=1)

    with consumer(cluster, group, topic, fail_twice):
        until(lambda: len(tries) == 6 and all(len(one) >= 3 for one in tries.values()), 90)
    assert all(one[:3] == [0, 1, 2] for one in tries.values())


def test_the_rest_of_a_batch_comes_again(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(8))
    seen = Seen()

    def first_half(messages: Sequence[MessageExt]) -> None:
        seen(messages)
        if messages[0].reconsume_times == 0:
            raise RetryLater(done=len(messages) // 2, delay_level=1)

    with consumer(cluster, group, topic, first_half, batch_size=8):
        until(lambda: set(Counter(seen.numbers)) == set(range(8)))
        until(lambda: len(seen.messages) >= 12)
        time.sleep(1.0)
    assert sum(Counter(seen.numbers).values()) == 12


@pytest.mark.parametrize("orderly", [False, True])
def test_after_its_attempts_a_message_is_a_dead_letter(
    cluster: Cluster, topic: str, group: str, orderly: bool
) -> None:
    send(cluster, topic, [7])
    calls: list[int] = []

    def fail(messages: Sequence[MessageExt]) -> None:
        calls.append(messages[0].reconsume_times)
        raise RetryLater("never", delay_level=1)

    with consumer(cluster, group, topic, fail, max_attempts=3, orderly=orderly, suspend_ms=50):
        until(lambda: len(calls) >= 3)
        dead = Seen()
        with LitePullConsumer(f"{group}-dead", namesrv=cluster.namesrv) as reader:
            until(lambda: _has_dead(reader, f"%DLQ%{group}", dead))
    assert calls == [0, 1, 2]
    assert dead.numbers == [7]


def _has_dead(reader: LitePullConsumer, topic: str, dead: Seen) -> bool:
    with Admin(namesrv=reader._inner._client_options.namesrv) as admin:
        if topic not in admin.topics():
            return False
        (queue,) = [one for one in admin.topic_stats(topic) if one.queue_id == 0]
    dead(reader.pull(queue, "*", 0).messages)
    return bool(dead.messages)


def test_orderly_members_keep_the_order_of_each_key(
    cluster: Cluster, topic: str, group: str
) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def note(messages: Sequence[MessageExt]) -> None:
        with lock:
            seen.extend(int(message.body) for message in messages)

    with (
        consumer(cluster, group, topic, note, orderly=True),
        consumer(cluster, group, topic, note, orderly=True),
    ):
        send_in_order(cluster, topic, range(COUNT))
        until(lambda: len(set(seen)) >= COUNT)
    for key in range(5):
        mine = [n for n in seen if n % 5 == key]
        assert mine == sorted(mine)


def test_an_orderly_queue_waits_for_a_message_that_fails(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(6))
    calls: list[int] = []

    def fail_on_2(messages: Sequence[MessageExt]) -> ConsumeStatus:
        calls.append(int(messages[0].body))
        if calls.count(2) in (1, 2) and calls[-1] == 2:
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeStatus.SUCCESS

    with consumer(cluster, group, topic, fail_on_2, orderly=True, suspend_ms=50):
        until(lambda: len(calls) >= 8)
    assert calls == [0, 1, 2, 2, 2, 3, 4, 5]


def test_key_lanes_keep_the_order_of_each_key_in_parallel(
    cluster: Cluster, make_topic: Callable[[int], str], group: str, tmp_path: object
) -> None:
    topic = make_topic(1)
    seen: list[int] = []

    def note(messages: Sequence[MessageExt]) -> None:
        seen.extend(int(message.body) for message in messages)

    send_in_order(cluster, topic, range(COUNT))
    with consumer(cluster, group, topic, note, order="key", state_dir=tmp_path):
        until(lambda: len(seen) >= COUNT)
    for key in range(5):
        mine = [n for n in seen if n % 5 == key]
        assert mine == sorted(mine)


def test_a_delayed_message_comes_later(cluster: Cluster, topic: str, group: str) -> None:
    seen = Seen()
    with consumer(cluster, group, topic, seen) as running:
        until(lambda: running.assigned)
        began = time.monotonic()
        send(cluster, topic, [1], delay_level=5)  # 2 s
        seen.wait(1)
        assert time.monotonic() - began > 1.5


def test_a_paused_consumer_gets_nothing_until_it_resumes(
    cluster: Cluster, topic: str, group: str
) -> None:
    seen = Seen()
    with consumer(cluster, group, topic, seen, poll_suspend_s=1.0) as running:
        until(lambda: len(running.assigned) >= 4)
        running.pause()
        time.sleep(6.5)  # the pulls under way come back; Apache's broker looks every 5 s
        send(cluster, topic, range(10))
        time.sleep(1.0)
        assert not seen.messages
        running.resume()
        seen.wait(10)


def test_polling_members_share_the_messages(cluster: Cluster, topic: str, group: str) -> None:
    send(cluster, topic, range(COUNT))
    one, other = lite(cluster, group), lite(cluster, group)
    one.subscribe(topic)
    other.subscribe(topic)
    with one, other:
        until(lambda: len(one.assigned) == len(other.assigned) == 2)
        found: list[int] = []
        until(lambda: found.extend(_numbers(one, other)) or len(found) >= COUNT)
    assert set(found) == set(range(COUNT))


def _numbers(*readers: LitePullConsumer) -> list[int]:
    return [int(message.body) for reader in readers for message in reader.poll(0.1)]


def test_polling_seeks_and_commits(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(30))
    queue = only_queue(cluster, topic)
    reader = lite(cluster, group, auto_commit=False)
    reader.assign([queue])
    with reader:
        assert polled(reader, 10)[:10] == list(range(10))
        reader.commit({queue: 10})
        assert reader.committed(queue) == 10
        reader.seek(queue, 25)
        assert polled(reader, 5) == list(range(25, 30))
        reader.seek_to_begin(queue)
        assert polled(reader, 1)[0] == 0
    again = lite(cluster, group, auto_commit=False)
    again.assign([queue])
    with again:
        assert polled(again, 1)[0] == 10


def test_polling_by_condition(cluster: Cluster, topic: str, group: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for n in range(20):
            producer.send(Message(topic, str(n).encode(), properties={"price": str(n)}))
    reader = lite(cluster, group)
    reader.subscribe(topic, MessageSelector.by_sql("price >= 15"))
    with reader:
        assert sorted(polled(reader, 5)) == list(range(15, 20))


def test_one_pull_says_what_it_found(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(10), tags="t")
    queue = only_queue(cluster, topic)
    with lite(cluster, group) as reader:
        found = reader.pull(queue, "*", 4, 3)
        numbers = [int(message.body) for message in found.messages]
        assert numbers == [4, 5, 6][: len(numbers)]
        assert found.next_offset == 4 + len(numbers) <= 7
        assert (found.min_offset, found.max_offset) == (0, 10)
        assert reader.pull(queue, "u", 0).status is PullStatus.NO_MATCHED_MSG
        assert reader.pull(queue, "*", 10).status is PullStatus.NO_NEW_MSG
        assert reader.pull(queue, "*", 99).status is PullStatus.OFFSET_ILLEGAL
        later = threading.Timer(0.3, send, (cluster, topic, [77]))
        later.start()
        waited = reader.pull(queue, "*", 10, block_s=10)
        later.join()
        assert [int(message.body) for message in waited.messages] == [77]


def test_a_time_is_found_in_a_queue(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(5))
    time.sleep(0.6)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.6)
    send(cluster, topic, range(5, 10))
    with lite(cluster, group) as reader:
        assert reader.offset_for_timestamp(only_queue(cluster, topic), middle_ms) == 5


def test_operators_see_what_a_member_does(cluster: Cluster, topic: str, group: str) -> None:
    send(cluster, topic, range(COUNT))
    seen = Seen()
    with consumer(cluster, group, topic, seen) as running:
        seen.wait(COUNT)
        until(lambda: len(running.assigned) == 5)  # the retry topic's queue comes later
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=running.client_id, jstack_enable=False
        )
        with BlockingChannel(cluster.broker) as channel:
            answer = channel.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        info = decode_running_info(answer.body)
        assert set(info.mq_table) == set(running.assigned)
        assert {one.topic for one in info.subscriptions} == {topic, f"%RETRY%{group}"}
        assert topic in info.status_table


def test_operators_have_a_member_handle_one_message(
    cluster: Cluster, topic: str, group: str
) -> None:
    send(cluster, topic, [5])
    seen = Seen()
    with consumer(cluster, group, topic, seen) as running:
        seen.wait(1)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group,
            client_id=running.client_id,
            msg_id=seen.messages[0].offset_msg_id,
            broker_name=seen.messages[0].broker_name,
        )
        with BlockingChannel(cluster.broker) as channel:
            answer = channel.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert decode_directly_result(answer.body).consume_result == "CR_SUCCESS"
        seen.wait(2)


def test_operators_move_a_running_group_back(
    cluster: Cluster, make_topic: Callable[[int], str], group: str
) -> None:
    topic = make_topic(1)
    send(cluster, topic, range(10))
    seen = Seen()
    with consumer(cluster, group, topic, seen, persist_s=0.5):
        seen.wait(10)
        time.sleep(1.0)
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=0, is_force=True)
        with BlockingChannel(cluster.broker) as channel:
            answer = channel.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        seen.wait(20)
    assert sorted(seen.numbers) == sorted([*range(10), *range(10)])
