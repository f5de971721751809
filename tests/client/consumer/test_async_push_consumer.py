"""Receiving: who gets what, what a handler may do, retries and dead letters."""

import asyncio
import itertools
import threading
import time
from collections import Counter

import pytest

from client.dead_letters import dead_letters
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    ConsumeStatus,
    FlowLimits,
    Message,
    Producer,
    PushConsumer,
    RetryLater,
)
from cometmq.errors import ClientError, RouteNotFound, SettingsError
from cometmq.testing.cluster import InProcessCluster


class Seen:
    """A handler that keeps what it saw, and fails where it should."""

    def __init__(self, fail=lambda message: None):
        self.messages, self._fail, self._lock = [], fail, threading.Lock()

    def __call__(self, messages):
        with self._lock:
            self.messages += messages
        for message in messages:
            self._fail(message)

    @property
    def bodies(self):
        return [message.body for message in list(self.messages)]

    def attempts(self, body):
        return self.bodies.count(body)


def consumer(cluster, group, topic, handler, expression="*", **options):
    options = {
        "consume_from": ConsumeFrom.FIRST,
        "lock_renew_s": 1.0,
        "lock_valid_s": 2.5,
    } | options
    made = PushConsumer(group, namesrv=cluster.namesrv, **options)
    made.subscribe(topic, expression, handler)
    return made


def send(cluster, topic, bodies, **more):
    with Producer("producers", namesrv=cluster.namesrv) as producer:
        return producer.send_many([Message(topic, body, **more) for body in bodies])


def numbers(count):
    return [b"%d" % n for n in range(count)]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_every_message_comes_once_and_is_committed(cluster, topic, group, orderly, batch_size):
    send(cluster, topic, numbers(1000))
    seen = Seen()
    with consumer(cluster, group, topic, seen, orderly=orderly, batch_size=batch_size):
        until(lambda: len(seen.messages) >= 1000)
    assert sorted(seen.bodies, key=int) == numbers(1000)
    with Admin(namesrv=cluster.namesrv) as admin:
        stats = admin.consume_stats(group, topic).values()
    assert sum(at.consumer_offset for at in stats) == sum(at.broker_offset for at in stats) == 1000


def test_an_orderly_handler_sees_each_queue_in_its_order(cluster, topic, group):
    seen = Seen()
    with consumer(cluster, group, topic, seen, orderly=True, consume_threads=4):
        send(cluster, topic, numbers(2000))
        until(lambda: len(seen.messages) >= 2000)
    for queue_id in range(4):
        offsets = [m.queue_offset for m in seen.messages if m.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))


def test_a_batch_handler_gets_lists_of_one_queue_up_to_the_size(cluster, topic, group):
    send(cluster, topic, numbers(500))
    lists = []
    with consumer(cluster, group, topic, lists.append, batch_size=16):
        until(lambda: sum(map(len, lists)) >= 500)
    assert max(map(len, lists)) == 16
    assert all(len({m.queue_id for m in messages}) == 1 for messages in lists)


def test_a_message_carries_what_was_sent(cluster, topic, group):
    seen = Seen()
    large = bytes(range(256)) * 40
    with Producer("producers", namesrv=cluster.namesrv) as producer:
        result = producer.send(
            Message(
                topic,
                large,
                tags="T",
                keys=["a", "b"],
                properties={"colour": "grün"},
                sharding_key="s",
                flag=7,
            )
        )
    with consumer(cluster, group, topic, seen):
        until(lambda: seen.messages)
    (message,) = seen.messages
    assert (message.body, message.tags, message.keys) == (large, "T", ["a", "b"])
    assert (message.sharding_key, message.flag) == ("s", 7)
    assert message.properties["colour"] == "grün"
    assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (message.message_queue, message.queue_offset) == (result.queue, result.queue_offset)
    assert abs(message.store_ms - time.time() * 1000) < 60_000
    assert "__CRC32#" not in message.properties


def test_only_the_tags_asked_for_come_even_when_hash_codes_collide(cluster, topic, group):
    seen = Seen()
    for tag in ("Aa", "BB", "C"):  # Aa and BB have the same Java hash
        send(cluster, topic, [tag.encode()] * 5, tags=tag)
    with consumer(cluster, group, topic, seen, expression="Aa || C"):
        until(lambda: len(seen.messages) >= 10)
    assert Counter(seen.bodies) == {b"Aa": 5, b"C": 5}


def test_a_new_group_starts_at_the_end_at_the_beginning_or_at_a_time(cluster, topic, group):
    send(cluster, topic, [b"old"] * 4)
    time.sleep(0.05)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.05)
    send(cluster, topic, [b"new"] * 4)
    seen = Seen()
    options = {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": middle_ms}
    with consumer(cluster, f"{group}-time", topic, seen, **options):
        until(lambda: len(seen.messages) >= 4)
    assert set(seen.bodies) == {b"new"}
    with pytest.raises(SettingsError, match="consume_timestamp_ms"):
        consumer(cluster, group, topic, seen, consume_from=ConsumeFrom.TIMESTAMP)


def test_a_restarted_group_goes_on_where_it_was(cluster, topic, group):
    first, second = Seen(), Seen()
    send(cluster, topic, numbers(100))
    with consumer(cluster, group, topic, first):
        until(lambda: len(first.messages) >= 100)
    send(cluster, topic, [b"new"] * 8)
    with consumer(cluster, group, topic, second):
        until(lambda: len(second.messages) >= 8)
    assert set(second.bodies) == {b"new"}


def test_several_topics_each_have_their_handler(cluster, make_topic, group):
    one, other = make_topic(cluster), make_topic(cluster)
    ones, others = Seen(), Seen()
    running = consumer(cluster, group, one, ones)
    with running, pytest.raises(ClientError, match="before"):
        running.subscribe(other, "*", others)
    running.subscribe(other, handler=others)
    with running:
        send(cluster, one, [b"1"])
        send(cluster, other, [b"2"])
        until(lambda: ones.messages and others.messages)
    assert (set(ones.bodies), set(others.bodies)) == ({b"1"}, {b"2"})


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("not today"),
        RetryLater("not today", delay_level=1),
        ConsumeStatus.RECONSUME_LATER,
        "nonsense",
    ],
)
def test_a_concurrent_message_that_fails_comes_again_later(cluster, topic, group, failure):
    seen = Seen()

    def handler(messages):
        seen(messages)
        if messages[0].reconsume_times < 2:
            if isinstance(failure, Exception):
                raise failure
            return failure
        return None

    with consumer(cluster, group, topic, handler):
        send(cluster, topic, [b"x"])
        until(lambda: len(seen.messages) >= 3)
    assert [message.reconsume_times for message in seen.messages] == [0, 1, 2]
    assert {message.topic for message in seen.messages} == {topic}
    assert len({message.msg_id for message in seen.messages}) == 1


def test_a_handler_may_make_a_message_a_dead_letter_at_once(cluster, topic, group):
    seen = Seen()

    def refuse(messages):
        seen(messages)
        raise RetryLater("never", delay_level=-1)

    with consumer(cluster, group, topic, refuse):
        send(cluster, topic, [b"x"])
        assert dead_letters(cluster, group, 1)[0].body == b"x"
    assert seen.bodies == [b"x"]


def test_a_concurrent_message_that_always_fails_becomes_one_dead_letter(cluster, topic, group):
    def fail(message):
        if message.body == b"bad":
            raise ValueError("no \x01arrival\x02 time")

    seen = Seen(fail)
    with consumer(cluster, group, topic, seen, max_attempts=3):
        send(cluster, topic, [b"good", b"bad", b"fine"])
        until(lambda: seen.attempts(b"bad") >= 3)
        (letter,) = dead_letters(cluster, group, 1)
    assert seen.attempts(b"bad") == 3
    assert seen.attempts(b"good") == seen.attempts(b"fine") == 1
    assert letter.body == b"bad"
    origin = next(m for m in seen.messages if m.body == b"bad")
    found = letter.properties
    assert found["DLQ_REASON"] == "ValueError: no  arrival  time"
    assert found["DLQ_ORIGIN_TOPIC"] == topic
    assert found["DLQ_ORIGIN_MESSAGE_ID"] == origin.msg_id
    assert int(found["DLQ_ATTEMPTS"]) == 3
    assert abs(int(found["DLQ_FAILED_AT"]) - time.time() * 1000) < 60_000


@pytest.mark.parametrize("batch_size", [1, 8])
def test_an_orderly_message_that_always_fails_holds_its_queue_then_is_a_dead_letter(
    cluster, make_topic, group, batch_size
):
    topic = make_topic(cluster, queues=1)

    def fail(message):
        if message.body in (b"3", b"7"):
            raise ValueError("x" * 1000)

    calls, done = [], []

    def handler(messages):
        calls.append([message.body for message in messages])
        for message in messages:
            fail(message)
        done.extend(message.body for message in messages)

    send(cluster, topic, numbers(20))
    options = {"orderly": True, "max_attempts": 3, "suspend_ms": 50, "batch_size": batch_size}
    with consumer(cluster, group, topic, handler, **options):
        until(lambda: len(done) >= 18)
        letters = dead_letters(cluster, group, 2)
    assert done == [body for body in numbers(20) if body not in (b"3", b"7")]
    for bad in (b"3", b"7"):
        assert calls.count([bad]) == 3
    assert [letter.body for letter in letters] == [b"3", b"7"]
    found = letters[0].properties
    assert found["DLQ_REASON"] == ("ValueError: " + "x" * 1000)[:512]
    assert (found["DLQ_ATTEMPTS"], found["DLQ_ORIGIN_TOPIC"]) == ("3", topic)
    assert (found["DLQ_ORIGIN_QUEUE_ID"], found["DLQ_ORIGIN_OFFSET"]) == ("0", "3")
    assert found["DLQ_ORIGIN_MESSAGE_ID"] == found["UNIQ_KEY"]


def test_an_orderly_queue_rests_between_attempts_while_others_go_on(cluster, make_topic, group):
    topic, times, others = make_topic(cluster, queues=2), [], []

    def handler(messages):
        if messages[0].queue_id == 0:
            times.append(time.monotonic())
            if len(times) < 4:
                raise RetryLater("again")
        else:
            others.append(time.monotonic())

    with Producer("producers", namesrv=cluster.namesrv) as producer:
        queues = producer.queues(topic)
        producer.send(Message(topic, b"x"), queue=queues[0])
        for _ in range(3):
            producer.send(Message(topic, b"x"), queue=queues[1])
    with consumer(cluster, group, topic, handler, orderly=True, suspend_ms=200):
        until(lambda: len(times) == 4 and len(others) == 3)
    assert all(later - sooner >= 0.19 for sooner, later in itertools.pairwise(times))
    assert others[-1] < times[-1]


def test_async_handlers_run_as_tasks_in_both_kinds(cluster, make_topic, group):
    async def scenario(orderly):
        topic, seen, busiest = await asyncio.to_thread(make_topic, cluster), [], []

        async def handler(messages):
            busiest.append(sum(1 for task in asyncio.all_tasks() if "handler" in repr(task)))
            await asyncio.sleep(0.001)
            seen.extend(messages)

        running = AsyncPushConsumer(
            f"{group}-{orderly}",
            namesrv=cluster.namesrv,
            orderly=orderly,
            consume_from=ConsumeFrom.FIRST,
        )
        running.subscribe(topic, "*", handler)
        async with running, AsyncProducer("producers", namesrv=cluster.namesrv) as producer:
            await producer.send_many([Message(topic, body) for body in numbers(200)])
            async with asyncio.timeout(30):
                while len(seen) < 200:
                    await asyncio.sleep(0.01)
        return sorted(int(message.body) for message in seen)

    for orderly in (False, True):
        assert asyncio.run(scenario(orderly)) == list(range(200))


def test_a_slow_handler_never_holds_more_than_its_limits(cluster, make_topic, group):
    topic, gate, held = make_topic(cluster, queues=1), threading.Event(), Seen()

    def handler(messages):
        held(messages)
        gate.wait(20)

    send(cluster, topic, numbers(500))
    limits = FlowLimits(count=50)
    options = {"consume_threads": 1, "flow": limits, "pull_batch_size": 16}
    with consumer(cluster, group, topic, handler, **options) as running:
        until(lambda: held.messages)
        time.sleep(0.5)
        (assigned,) = [
            a for q, a in running._inner._engine._assignment.table.items() if q.topic == topic
        ]
        assert 50 < assigned.window.count <= 50 + 16
        gate.set()
        until(lambda: len(held.messages) >= 500)


def test_a_clean_stop_finishes_what_is_in_hand_and_commits_it(cluster, make_topic, group):
    topic, begun, finished = make_topic(cluster, queues=1), threading.Event(), []

    def handler(messages):
        begun.set()
        time.sleep(0.5)
        finished.extend(messages)

    for orderly in (False, True):
        begun.clear()
        finished.clear()
        send(cluster, topic, [b"first"])
        with consumer(cluster, f"{group}-{orderly}", topic, handler, orderly=orderly):
            until(begun.is_set)
        count = len(finished)
        assert count >= 1
        with Admin(namesrv=cluster.namesrv) as admin:
            (offset,) = admin.group_offsets(f"{group}-{orderly}", topic).values()
        assert offset == count


def test_a_handler_gets_its_messages_again_when_no_broker_takes_them_back(
    own_cluster, make_topic, group
):
    topic, failed, seen = make_topic(own_cluster), threading.Event(), Seen()

    def handler(messages):
        seen(messages)
        if len(seen.messages) == 1:
            own_cluster.kill()
            failed.set()
            raise ValueError("and nobody there to take it back")

    send(own_cluster, topic, [b"x"])
    with consumer(own_cluster, group, topic, handler) as running:
        object.__setattr__(running._inner._engine._options, "retry_in_place_s", 0.2)
        until(failed.is_set)
        until(lambda: len(seen.messages) >= 2)
        assert seen.messages[1].reconsume_times == 1
        own_cluster.restart()
        until(lambda: running.assigned)


def test_a_consumer_without_subscription_or_handler_is_refused(cluster, group):
    lonely = PushConsumer(group, namesrv=cluster.namesrv)
    with pytest.raises(ClientError, match="subscribe"):
        lonely.start()
    with pytest.raises(ClientError, match="handler"):
        lonely.subscribe("t")


def test_wait_ends_when_the_consumer_is_stopped(cluster, topic, group):
    with consumer(cluster, group, topic, Seen()) as running:
        assert running.wait(0.05) is False
        threading.Timer(0.2, running.stop).start()
        assert running.wait(10) is True
    assert running.wait() is True


def test_admin_tells_topics_offsets_and_lag_and_names_what_is_missing(cluster, topic, group):
    send(cluster, topic, numbers(10))
    with Admin(namesrv=cluster.namesrv) as admin:
        assert topic in admin.topics()
        assert not [name for name in admin.topics() if name.startswith("rmq_sys_")]
        assert len(admin.topics(with_system=True)) > len(admin.topics())
        stats = admin.consume_stats(group, topic)
        assert sum(at.broker_offset - at.consumer_offset for at in stats.values()) == 10
        with consumer(cluster, group, topic, seen := Seen()):
            until(lambda: len(seen.messages) >= 10)
        stats = admin.consume_stats(group, topic)
        assert sum(at.broker_offset - at.consumer_offset for at in stats.values()) == 0
        queue = admin.queues(topic)[0]
        with Admin(namesrv=cluster.namesrv) as fresh:  # which has asked nothing yet
            fresh.set_group_offsets(group, {queue: 1})
        assert admin.group_offsets(group, topic)[queue] == 1
        stored = admin.topic_stats(topic)
        assert sum(at.max_offset - at.min_offset for at in stored.values()) == 10
        for at in stored.values():
            if at.max_offset:
                assert abs(at.last_update_timestamp - time.time() * 1000) < 60_000
            else:
                assert at.last_update_timestamp == 0
        with pytest.raises(RouteNotFound, match="no-such-topic"):
            admin.topic_stats("no-such-topic")


def test_a_topic_that_is_created_or_changed_is_known_at_once_whatever_its_permission(
    cluster, group
):
    topic = f"changing-{group}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, queues=2, perm=2)
        with pytest.raises(RouteNotFound, match=topic):
            admin.queues(topic)
        admin.alter_topic(topic, queues=4, perm=6)
    for count in (5, 1):
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.alter_topic(topic, queues=count, may_hide_messages=True)
            assert len(admin.queues(topic)) == count


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("size", [32_000, 32_500, 32_590])
def test_a_message_whose_properties_fill_a_record_can_still_be_a_dead_letter(
    cluster, make_topic, group, orderly, size
):
    topic = make_topic(cluster, queues=1)

    def fail(message):
        if message.body == b"bad":
            raise ValueError("x" * 1000)

    seen = Seen(fail)
    options = {"orderly": orderly, "max_attempts": 2, "suspend_ms": 10}
    running = consumer(cluster, group, topic, seen, **options)
    with running:
        object.__setattr__(running._inner._engine._options, "retry_in_place_s", 0.1)
        send(cluster, topic, [b"bad"], properties={"large": "v" * size, "small": "s"})
        send(cluster, topic, [b"good"])
        until(lambda: seen.attempts(b"good") == 1)
        (letter,) = dead_letters(cluster, group, 1)
    has_room = (
        orderly or size < 32_590
    )  # without room for a retry's properties: a dead letter at once
    assert seen.attempts(b"bad") == (2 if has_room else 1)
    found = letter.properties
    assert (letter.body, found["small"]) == (b"bad", "s")
    assert (found["DLQ_ORIGIN_TOPIC"], found["DLQ_ORIGIN_MESSAGE_ID"]) == (topic, letter.msg_id)
    if "large" in found:
        assert found["large"] == "v" * size
    else:
        assert found["DLQ_REASON"].startswith("[without large] ValueError")


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_whoever_gives_up_a_stop_at_any_moment_leaves_at_once_and_no_task_behind(tmp_path, turns):
    """Turns of the loop lie between the stop and its end, as between two interrupts."""

    async def scenario():
        begun = asyncio.Event()

        async def hang(_messages):
            begun.set()
            await asyncio.Event().wait()

        async with (
            InProcessCluster(tmp_path) as cluster,
            AsyncProducer("producers", namesrv=cluster.namesrv) as producer,
        ):
            await producer.send(Message("T", b"x"))
            before = asyncio.all_tasks()
            consumer = AsyncPushConsumer(
                "g", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, stop_timeout_s=60.0
            )
            consumer.subscribe("T", "*", hang)
            running = asyncio.create_task(consumer.run())
            await begun.wait()
            consumer.stop_soon("the first interrupt")
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            async with asyncio.timeout(20):
                await asyncio.wait((running,))
                while asyncio.all_tasks() - before:
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_statistics_say_what_a_queue_holds_and_why_it_is_not_pulled(cluster, make_topic, group):
    topic = make_topic(cluster, queues=1)
    with Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_many([Message(topic, b"x") for _ in range(40)])
    is_open = threading.Event()
    limits = FlowLimits(count=2)
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first", flow=limits)
    consumer.subscribe(topic, "*", lambda messages: is_open.wait(30) and None)
    assert consumer.stats().queues == ()
    with consumer:

        def of_the_topic():
            return next((one for one in consumer.stats().queues if one.queue.topic == topic), None)

        until(lambda: (one := of_the_topic()) and one.in_flight and one.why_not_pulled)
        one = of_the_topic()
        assert one.cached > 2
        assert one.why_not_pulled == f"{one.cached} messages are cached; flow.count is 2"
        assert consumer.stats().cached == one.cached
        assert one.cached_bytes == one.cached
        consumer.pause()
        assert consumer.stats().is_paused
        assert of_the_topic().why_not_pulled == "the consumer is paused"
        consumer.resume()
        is_open.set()
        until(lambda: consumer.stats().cached == 0)
        until(lambda: topic in consumer.stats().topics)
        assert consumer.stats().topics[topic].consume_failed_msgs == 0
