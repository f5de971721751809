"""Handlers that end in every way, work that breaks off, and arguments of the wrong type."""

import asyncio

import pytest

import cometmq
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    RetryLater,
    errors,
)
from cometmq.client.consumer import message_decoder as decode
from cometmq.client.consumer.consumer_options import allocation_of, consume_from_of
from cometmq.errors import ClientError, InvalidMessage, SettingsError
from cometmq.rules.allocate import STRATEGIES

NOBODY = "127.0.0.1:1"


def ends_badly(is_async):
    """A handler that fails once on "0", in a way that is no Exception; and what it saw."""
    seen = []

    def plain(messages):
        seen.append(messages[0].body)
        if seen.count(b"0") == 1 and seen[-1] == b"0":
            raise asyncio.CancelledError

    async def awaits(messages):
        seen.append(messages[0].body)
        if seen.count(b"0") == 1 and seen[-1] == b"0":
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

    return (awaits if is_async else plain), seen


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
def test_a_queue_goes_on_whatever_its_handler_raised(served, group, make_topic, orderly, is_async):
    topic = make_topic(served, 1)
    handler, seen = ends_badly(is_async)
    with Producer("producers", namesrv=served.namesrv) as producer:
        producer.send_batch([Message(topic, b"%d" % n) for n in range(3)])
    options = {"orderly": orderly, "suspend_ms": 10, "consume_from": ConsumeFrom.FIRST}
    consumer = PushConsumer(group, namesrv=served.namesrv, **options)
    consumer.subscribe(topic, "*", handler)
    with consumer:
        until(lambda: len(seen) >= 4)
    with Admin(namesrv=served.namesrv) as admin:
        offsets = admin.group_offsets(group, topic)
    assert list(offsets.values()) == [3]
    assert seen.count(b"0") == 2


def test_retried_messages_go_to_the_handlers_of_their_own_topics(served, group, make_topic):
    topics, seen = [make_topic(served, 1) for _ in range(2)], []

    def handler_of(own):
        def handler(messages):
            seen.extend((own, message.topic, message.reconsume_times) for message in messages)
            if messages[0].reconsume_times == 0:
                raise RetryLater("once more", delay_level=1)

        return handler

    def consumer():
        options = {"batch_size": 32, "consume_from": ConsumeFrom.FIRST}
        made = PushConsumer(group, namesrv=served.namesrv, **options)
        for topic in topics:
            made.subscribe(topic, "*", handler_of(topic))
        return made

    with Producer("producers", namesrv=served.namesrv) as producer:
        for number in range(5):  # the two take turns in the retry queue as well
            for topic in topics:
                producer.send(Message(topic, b"%d" % number))
    with consumer():
        until(lambda: len(seen) >= 10)
    with Admin(namesrv=served.namesrv) as admin:
        retry = f"%RETRY%{group}"
        until(lambda: sum(at.max_offset for at in admin.topic_stats(retry).values()) >= 10)
    with consumer():  # finds all ten in one pull
        until(lambda: len(seen) >= 20)
    assert [entry for entry in seen if entry[0] != entry[1]] == []
    assert sorted(times for _, _, times in seen) == [0] * 10 + [1] * 10


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
def test_a_queue_whose_work_broke_off_is_begun_anew(
    served, group, topic, orderly, monkeypatch, caplog
):
    real, seen = decode.decode_messages, []

    def broken_once(body, broker_name):
        monkeypatch.setattr(decode, "decode_messages", real)
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(decode, "decode_messages", broken_once)

    async def story():
        async with AsyncProducer("producers", namesrv=served.namesrv) as producer:
            await producer.send(Message(topic, b"one"))
        options = {"orderly": orderly, "consume_from": ConsumeFrom.FIRST}
        consumer = AsyncPushConsumer(group, namesrv=served.namesrv, **options)
        consumer.subscribe(topic, "*", seen.extend)
        async with consumer, asyncio.timeout(20):
            while not seen:
                await asyncio.sleep(0.01)

    asyncio.run(story())
    assert [message.body for message in seen] == [b"one"]
    assert "nobody foresaw this" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"consume_from": "beginning"},
        {"consume_from": 1},
        {"consume_from": ConsumeFrom.TIMESTAMP, "consume_timestamp_ms": "2013"},
        {"consume_threads": "20"},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"suspend_ms": "1000"},
        {"suspend_ms": 9},
        {"suspend_ms": 30_001},
        {"max_attempts": "3"},
        {"orderly": "no"},
        {"flow": {"count": 1}},
        {"flow": 0},
        {"allocate": "EVEN"},
        {"allocate": None},
        {"persist_s": -1},
        {"rebalance_s": None},
        {"heartbeat_s": 0},
        {"lock_renew_s": "x"},
        {"stop_timeout_s": float("nan")},
        {"instance_name": 5},
        {"namesrv": 9876},
        {"namesrv": [9876]},
        {"namesrv": "localhost:99999"},
    ],
    ids=str,
)
def test_an_argument_of_the_wrong_kind_is_named_at_once(wrong):
    name = next(iter(wrong)) if "consume_timestamp_ms" not in wrong else "consume_timestamp_ms"
    name = "name server" if wrong.get("namesrv") == "localhost:99999" else name
    with pytest.raises(SettingsError, match=name) as caught:
        PushConsumer("group", **{"namesrv": NOBODY} | wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("group", [None, 5, b"group"])
def test_a_group_is_a_text(group):
    for client in (PushConsumer, Producer):
        with pytest.raises(SettingsError, match="group"):
            client(group, namesrv=NOBODY)


@pytest.mark.parametrize("name", ["retries", "compress_over_bytes", "default_topic_queues"])
def test_a_producer_names_a_wrong_argument(name):
    with pytest.raises(SettingsError, match=name):
        Producer("group", namesrv=NOBODY, **{name: "4"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("first", ConsumeFrom.FIRST),
        ("Last", ConsumeFrom.LAST),
        ("CONSUME_FROM_FIRST_OFFSET", ConsumeFrom.FIRST),
        ("timestamp", ConsumeFrom.TIMESTAMP),
        (ConsumeFrom.LAST, ConsumeFrom.LAST),
    ],
)
def test_where_a_group_begins_may_be_said_by_name(name, meant):
    assert consume_from_of(name) is meant
    PushConsumer("group", namesrv=NOBODY, consume_from=name, consume_timestamp_ms=0)


def test_a_strategy_may_be_said_by_rocketmqs_name():
    for name, function in STRATEGIES.items():
        assert (
            allocation_of(name)
            is allocation_of(name.lower())
            is allocation_of(function)
            is function
        )
        PushConsumer("group", namesrv=NOBODY, allocate=name)


@pytest.mark.parametrize(
    ("expression", "handler"),
    [
        (None, print),
        (["A"], print),
        ("*", 5),
        (print, None),
        ("a > 3", print),
        ("a=3", print),
        ("A | B", print),
        ("A|B", print),
        ("A B", print),
        ("A || in ('x')", print),
        ("PAID*", print),
        ("* || A", print),
        ("||", print),
    ],
)
def test_a_subscription_needs_tags_and_a_function(expression, handler):
    with pytest.raises(ClientError, match="subscribe to T") as caught:
        PushConsumer("group", namesrv=NOBODY).subscribe("T", expression, handler)
    assert "'*'" in str(caught.value) or handler == 5


@pytest.mark.parametrize("expression", ["*", "", " * ", "A", "A||B", " A || B-2 || ü.3 ||"])
def test_tags_and_nothing_and_all_are_subscribed(expression):
    PushConsumer("group", namesrv=NOBODY).subscribe("T", expression, print)


@pytest.mark.parametrize(
    "wrong",
    [
        {"flag": 1 << 40},
        {"delay_level": "3"},
        {"delay_level": -1},
        {"tags": 5},
        {"sharding_key": 5},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"properties": ["a"]},
        {"tags": "\ud800"},
        {"keys": "a\ud800"},
        {"properties": {"a": "\udfff"}},
        *({"properties": {name: "a"}} for name in ("DLQ_REASON", "DLQ_ATTEMPTS", "__SHARDINGKEY")),
    ],
    ids=str,
)
def test_a_message_of_wrong_parts_is_refused_before_it_is_sent(wrong):
    with Producer("producers", namesrv=NOBODY) as producer, pytest.raises(InvalidMessage):
        producer.send(Message("T", b"x", **wrong))


@pytest.mark.parametrize("keys", [5, [1, 2], b"k"])
def test_keys_are_a_text_or_several(keys):
    with pytest.raises(InvalidMessage, match="keys must be a text or a list of texts"):
        Message("T", b"x", keys=keys)
    assert Message("T", b"x", keys=("a", "b")).keys == "a b"


@pytest.mark.parametrize("thing", ["hello", None, b"x", 5])
def test_what_is_no_message_is_refused_with_a_sentence(thing):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (
            producer.send,
            producer.send_oneway,
            lambda m: producer.send_async(m).result(9),
        ):
            with pytest.raises(InvalidMessage, match=r"must be a Message, as in .*, not"):
                send(thing)
        for send in (producer.send_many, producer.send_batch):
            with pytest.raises(InvalidMessage, match="must be a Message"):
                send([thing])


@pytest.mark.parametrize("things", [Message("T", b"x"), None, 5])
def test_what_is_no_list_of_messages_is_refused_with_a_sentence(things):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send_many, producer.send_batch):
            with pytest.raises(InvalidMessage, match="must be a list of Message, not"):
                send(things)


@pytest.mark.parametrize("timeout_s", ["3", None, 0, -1.0, float("nan")])
def test_a_time_to_wait_is_a_number_above_zero(timeout_s):
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send, lambda m, t: producer.send_many([m], t)):
            with pytest.raises(ClientError, match=r"timeout_s is .* number of seconds"):
                send(Message("T", b"x"), timeout_s)
    with pytest.raises(SettingsError, match="timeout_s"):
        Admin(namesrv=NOBODY, timeout_s=timeout_s)


def test_a_topic_that_is_no_text_and_a_body_of_text_are_named():
    with Producer("producers", namesrv=NOBODY) as producer:
        for send in (producer.send, lambda m: producer.send_many([m])):
            with pytest.raises(InvalidMessage, match=r"topic \['T'\] is no text"):
                send(Message(["T"], b"x"))
        with pytest.raises(InvalidMessage, match=r"for T is str; it must be bytes, as text.encode"):
            producer.send(Message("T", "text"))
        with pytest.raises(InvalidMessage, match="one topic"):
            producer.send_batch([Message("T", b"x"), Message("U", b"x")])


def test_the_errors_that_users_catch_are_at_the_root():
    names = "PartlySent BrokerError RemotingError RemotingTimeout RouteNotFound InvalidMessage"
    for name in [*names.split(), "SettingsError", "ClientError", "CometError"]:
        assert getattr(cometmq, name) is getattr(errors, name)
        assert name in cometmq.__all__
