"""The consumer whose program polls: positions, commits, seeks, pauses, and single pulls."""

import asyncio
import threading
import time
from itertools import islice

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncLitePullConsumer,
    ClientError,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PullStatus,
    RouteNotFound,
    SettingsError,
)
from cometmq.errors import NotStarted


@pytest.fixture
def lite(cluster, group):
    def make(**settings):
        settings = {"consume_from": ConsumeFrom.FIRST, "rebalance_s": 1.0, **settings}
        return LitePullConsumer(group, namesrv=cluster.namesrv, **settings)

    return make


def send(cluster, topic, numbers, tags=None):
    with Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_many([Message(topic, str(n).encode(), tags=tags) for n in numbers])


def send_to(cluster, queue, numbers):
    with Producer("p", namesrv=cluster.namesrv) as producer:
        producer.queues(queue.topic)
        for n in numbers:
            producer.send(Message(queue.topic, str(n).encode()), queue=queue)


def take(consumer, count):
    found = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(1.0)
    return [int(message.body) for message in found]


@pytest.fixture
def queue(cluster, make_topic):
    """The only queue of a topic, with 30 messages."""
    topic = make_topic(cluster, queues=1)
    with Admin(namesrv=cluster.namesrv) as admin:
        (found,) = admin.queues(topic)
    send_to(cluster, found, range(30))
    return found


def test_members_share_the_queues_and_together_get_everything_once(cluster, topic, lite):
    send(cluster, topic, range(100))
    one, other = lite(), lite()
    for consumer in (one, other):
        consumer.subscribe(topic)
    with one, other:
        until(lambda: len(one.assigned) == len(other.assigned) == 2)
        assert one.client_id.endswith("@STREAM")
        got = []
        until(lambda: got.extend(one.poll(0.1) + other.poll(0.1)) or len(got) >= 100)
    assert {int(message.body) for message in got} == set(range(100))


def test_a_poll_gives_messages_of_one_queue_in_order_at_most_so_many(queue, lite):
    consumer = lite()
    consumer.assign([queue])
    with consumer:
        first = consumer.poll(5.0)
        assert [int(message.body) for message in first] == list(range(10))
        assert [int(message.body) for message in consumer.poll(5.0, 3)] == [10, 11, 12]
        assert consumer.position(queue) == 13
        assert take(consumer, 17) == list(range(13, 30))
        began = time.monotonic()
        assert consumer.poll(0.2) == []
        assert 0.15 < time.monotonic() - began < 15


def test_a_manual_commit_is_all_that_moves_the_group(queue, lite):
    consumer = lite(auto_commit=False, persist_s=0.05)
    consumer.assign([queue])
    with consumer:
        assert take(consumer, 10) == list(range(10))
        time.sleep(0.2)  # several times persist_s
        assert consumer.committed(queue) in (None, 0)
        consumer.commit()
        assert consumer.committed(queue) == 10
        assert take(consumer, 10) == list(range(10, 20))
    again = lite(auto_commit=False)
    again.assign([queue])
    with again:
        assert take(again, 10) == list(range(10, 20))
        again.commit({queue: 7})
    with lite() as third:
        assert third.committed(queue) == 7


def test_the_automatic_commit_leaves_out_the_last_batch(queue, lite):
    consumer = lite(auto_commit_s=0.01, persist_s=0.05)
    consumer.assign([queue])

    def fail_on_the_second_batch():
        with consumer:
            consumer.poll(5.0)
            time.sleep(0.02)
            consumer.poll(5.0)
            raise KeyError

    with pytest.raises(KeyError):
        fail_on_the_second_batch()
    again = lite()
    again.assign([queue])
    with again:
        assert take(again, 20) == list(range(10, 30))
    with lite() as third:  # an orderly end commits everything that was given
        assert third.committed(queue) == 30


@pytest.mark.parametrize("error", [KeyError, SystemExit, KeyboardInterrupt])
def test_an_end_by_an_error_commits_all_but_what_was_handed_out_last(queue, lite, error):
    consumer = lite()
    consumer.assign([queue])

    def fail_on_the_third_batch():
        with consumer:
            for _ in range(3):
                consumer.poll(5.0)
            raise error

    with pytest.raises(error):
        fail_on_the_third_batch()
    with lite() as again:
        assert again.committed(queue) == 20


def test_seeking_goes_back_and_forth_and_forgets_what_was_pulled(queue, lite):
    consumer = lite()
    consumer.assign([queue])
    with consumer:
        assert take(consumer, 10) == list(range(10))
        consumer.seek(queue, 25)
        assert take(consumer, 5) == list(range(25, 30))
        consumer.seek_to_begin(queue)
        assert take(consumer, 30) == list(range(30))
        consumer.seek_to_end(queue)
        assert consumer.poll(0.2) == []
        with pytest.raises(ClientError, match="0 to 30"):
            consumer.seek(queue, 31)
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(queue._replace(queue_id=7), 0)


def test_iterating_gives_one_message_after_the_other_and_breaking_off_loses_none(queue, lite):
    consumer = lite()
    consumer.assign([queue])
    with consumer:
        assert [int(message.body) for message in islice(consumer, 7)] == list(range(7))
        assert int(next(consumer).body) == 7
        assert take(consumer, 22) == list(range(8, 30))
    assert list(consumer) == []


def test_async_iteration_ends_with_the_consumer(cluster, queue, group):
    async def scenario():
        seen, consumer = (
            [],
            AsyncLitePullConsumer(group, namesrv=cluster.namesrv, consume_from="first"),
        )
        consumer.assign([queue])
        await consumer.start()
        ending = None
        async for message in consumer:
            seen.append(int(message.body))
            if len(seen) == 30:
                ending = asyncio.create_task(consumer.stop())
        await ending
        return seen

    assert asyncio.run(scenario()) == list(range(30))


def test_a_paused_queue_gives_nothing_until_it_is_resumed(cluster, topic, lite):
    with Admin(namesrv=cluster.namesrv) as admin:
        queues = admin.queues(topic)
    for queue in queues:
        send_to(cluster, queue, range(10))
    consumer = lite()
    consumer.assign(queues)
    with consumer:
        until(lambda: len(consumer.assigned) == 4)
        consumer.pause(queues[:3])
        seen = []
        while found := consumer.poll(0.5):
            seen += found
        assert {message.message_queue for message in seen} == {queues[3]}
        consumer.seek_to_begin(queues[0])
        assert consumer.poll(0.3) == []  # still paused
        consumer.resume(queues)
        assert len(take(consumer, 30)) == 30


def test_assigning_anew_gives_up_the_queues_that_are_left_out(cluster, topic, lite):
    with Admin(namesrv=cluster.namesrv) as admin:
        queues = admin.queues(topic)
    consumer = lite()
    consumer.assign(queues)
    with consumer:
        until(lambda: consumer.assigned == queues)
        consumer.assign(queues[:1])
        until(lambda: consumer.assigned == queues[:1])
        with pytest.raises(ClientError, match="cannot subscribe"):
            consumer.subscribe(topic)
    other = lite()
    other.subscribe(topic)
    with pytest.raises(ClientError, match="cannot be assigned"):
        other.assign(queues)


def test_a_single_pull_says_what_it_found_and_where_to_go_on(cluster, queue, lite):
    with lite() as consumer:
        found = consumer.pull(queue, "*", 12, 4)
        assert found.status is PullStatus.FOUND
        numbers = [int(message.body) for message in found.messages]
        assert numbers == [12, 13, 14, 15][: len(numbers)]  # a pull may bring less than there is
        assert found.next_offset == 12 + len(numbers) <= 16
        assert (found.min_offset, found.max_offset) == (0, 30)
        assert consumer.pull(queue, "*", 30).status is PullStatus.NO_NEW_MSG
        assert consumer.pull(queue, "*", 99).status is PullStatus.OFFSET_ILLEGAL
        nothing = consumer.pull(queue, "some-tag", 0)
        assert nothing.status is PullStatus.NO_MATCHED_MSG
        later = threading.Timer(0.3, send_to, (cluster, queue, [77]))
        later.start()
        waited = consumer.pull(queue, "*", 30, block_s=10)
        later.join()
        assert [int(message.body) for message in waited.messages] == [77]
        with pytest.raises(ClientError, match="block_s"):
            consumer.pull(queue, "*", 0, block_s=31)


def test_queues_offsets_and_times_can_be_asked_for(cluster, queue, lite):
    with lite() as consumer:
        assert consumer.fetch_message_queues(queue.topic) == [queue]
        (message,) = consumer.pull(queue, "*", 11, 1).messages
        at = consumer.offset_for_timestamp(queue, message.store_ms)
        assert at <= 11
        assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 30)
        with pytest.raises(RouteNotFound):
            consumer.fetch_message_queues("no-such-topic")


def test_only_tags_asked_for_are_polled(cluster, topic, lite):
    send(cluster, topic, range(10), tags="red")
    send(cluster, topic, range(10, 20), tags="blue")
    consumer = lite()
    consumer.subscribe(topic, "blue || green")
    with consumer:
        assert sorted(take(consumer, 10)) == list(range(10, 20))


def test_a_group_that_is_broadcast_to_keeps_its_positions_in_files(cluster, queue, lite, tmp_path):
    settings = {"broadcasting": True, "offsets_dir": tmp_path, "instance_name": "me"}
    for expected in (range(10), range(10, 20)):
        consumer = lite(**settings)
        consumer.subscribe(queue.topic)
        with consumer:
            assert take(consumer, 10) == list(expected)
    assert [path.name for path in tmp_path.rglob("offsets.json")] == ["offsets.json"]


def test_settings_and_states_that_make_no_sense_are_refused(lite):
    with pytest.raises(TypeError, match="auto_commit_s"):
        lite(auto_comit_s=1)
    with pytest.raises(SettingsError):
        lite(cached_max=0)
    with pytest.raises(NotStarted):
        lite().poll()
    with pytest.raises(ClientError):
        lite().subscribe("t", "a b")
    assert lite().assigned == []


@pytest.mark.parametrize("wrong", ["topic", [1], [None]])
def test_only_a_list_of_queues_can_be_assigned(wrong):
    with pytest.raises(ClientError, match="MessageQueue"):
        LitePullConsumer("g", namesrv="127.0.0.1:1").assign(wrong)


@pytest.mark.parametrize("wrong", [("x",), (None,), (float("nan"),), (1, 0), (1, "x"), (1, 1.5)])
def test_a_poll_for_no_time_and_no_number_is_refused_at_once(cluster, group, wrong):
    running = LitePullConsumer(group, namesrv=cluster.namesrv)
    with running, pytest.raises(ClientError, match="must be"):
        running.poll(*wrong)


def test_a_poll_without_a_subscription_is_an_error_at_once(lite):
    with lite() as consumer:
        with pytest.raises(ClientError, match="nothing to poll: subscribe to a topic"):
            consumer.poll(60.0)
        with pytest.raises(ClientError, match="nothing to poll"):
            next(iter(consumer))
        consumer.assign([])
        assert consumer.poll(0.01) == [], "what is assigned may be nothing"


@pytest.mark.parametrize("timeout_s", [1000, 1000.0, 300.5])
def test_a_poll_of_milliseconds_is_refused(lite, queue, timeout_s):
    with lite() as consumer:
        consumer.assign([queue])
        with pytest.raises(ClientError, match=rf"timeout_s is {timeout_s}; it is in seconds"):
            consumer.poll(timeout_s)
        assert consumer.poll(float("inf"))
