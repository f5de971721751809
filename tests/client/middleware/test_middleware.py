"""A user's middleware sees, changes and refuses sends and handler calls, in both colours."""

import asyncio
import threading
from collections import Counter

import pytest

from client.short_delay_cluster import until
from cometmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    BrokerError,
    ConsumeFrom,
    ConsumeStatus,
    InvalidMessage,
    LitePullConsumer,
    Message,
    Middleware,
    PartlySent,
    Producer,
    PushConsumer,
    RemotingTimeout,
    SettingsError,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response

SEND = RequestCode.SEND_MESSAGE_V2
SCRIPTED = "t"


class Recorder(Middleware):
    """Notes every hook that is called, tags messages and refuses those that say so."""

    def __init__(self, name="", log=None):
        self.name, self.log, self.threads = name, [] if log is None else log, set()

    def note(self, hook, detail, context):
        self.threads.add(threading.current_thread().name)
        self.log.append((f"{self.name}{hook}", context.kind, detail))

    def before_send(self, message, context):
        assert (context.queue is not None) == (message.body == b"3")
        if message.body == b"refused":
            raise InvalidMessage("the middleware refuses it")
        message.tags = "tagged"
        context.state[self.name] = message.body
        self.note("before", message.body, context)

    def after_send(self, message, context, result):
        assert context.state[self.name] == message.body
        self.note("after", message.body, context)

    def send_failed(self, message, context, error):
        self.note("failed", type(error), context)

    def after_batch(self, messages, context, results):
        self.note("batch", len(messages), context)

    def transaction_ends(self, topic, half, state):
        self.log.append((f"{self.name}end", topic, state.name))

    def before_handle(self, messages, context):
        if messages[0].body == b"not handled" and not messages[0].reconsume_times:
            raise ValueError("the middleware refuses it")
        self.note("before", messages[0].body, context)

    def after_handle(self, messages, context, status):
        self.note("after", status, context)

    def handle_failed(self, messages, context, error):
        self.note("failed", type(error), context)

    def after_poll(self, messages, context):
        self.note("polled", messages[0].body, context)


class AsyncRecorder(Recorder):
    """The same with async hooks."""

    async def before_send(self, message, context):
        await asyncio.sleep(0)
        super().before_send(message, context)

    async def after_send(self, message, context, result):
        await asyncio.sleep(0)
        super().after_send(message, context, result)

    async def before_handle(self, messages, context):
        await asyncio.sleep(0)
        super().before_handle(messages, context)

    async def after_handle(self, messages, context, status):
        await asyncio.sleep(0)
        super().after_handle(messages, context, status)


@pytest.mark.parametrize("recorder", [Recorder(), AsyncRecorder()], ids=["plain", "async"])
def test_every_send_method_of_a_blocking_producer_calls_the_hooks(cluster, topic, recorder):
    with Producer("g", namesrv=cluster.namesrv, middleware=[recorder]) as producer:
        producer.send(Message(topic, b"1"))
        producer.send(Message(topic, b"2", sharding_key="k"))
        producer.send(Message(topic, b"3"), queue=producer.queues(topic)[1])
        producer.send_async(Message(topic, b"4")).result(10)
        producer.send_oneway(Message(topic, b"5"))
        producer.send_batch([Message(topic, b"6"), Message(topic, b"7")])
        producer.send_many([Message(topic, b"8")])
        with producer.transaction() as transaction:
            transaction.send(Message(topic, b"9"))
        for refused in (
            lambda: producer.send(Message(topic, b"refused")),
            lambda: producer.send_batch([Message(topic, b"10"), Message(topic, b"refused")]),
        ):
            with pytest.raises(InvalidMessage, match="the middleware refuses it"):
                refused()
    single = [("send", b"1"), ("send", b"2"), ("send", b"3"), ("send", b"4"), ("oneway", b"5")]
    wanted = [
        pair for kind, body in single for pair in (("before", kind, body), ("after", kind, body))
    ]
    wanted += [("before", "batch", b"6"), ("before", "batch", b"7"), ("batch", "batch", 2)]
    wanted += [("after", "batch", b"6"), ("after", "batch", b"7")]
    wanted += [("before", "batch", b"8"), ("batch", "batch", 1), ("after", "batch", b"8")]
    wanted += [("before", "half", b"9"), ("after", "half", b"9"), ("end", topic, "COMMIT")]
    wanted += [("before", "batch", b"10"), ("failed", "batch", InvalidMessage)]
    assert recorder.log == wanted
    assert ("MainThread" in recorder.threads) == (type(recorder) is Recorder)
    with LitePullConsumer("r", namesrv=cluster.namesrv) as consumer:
        found = [
            message
            for queue in consumer.fetch_message_queues(topic)
            for message in consumer.pull(queue).messages
        ]
    assert {message.tags for message in found} == {"tagged"}
    assert {message.body for message in found} == {b"%d" % n for n in range(1, 10)}


def test_an_asyncio_producer_has_plain_and_async_hooks_in_order(scripted_broker):
    log = []

    async def scenario():
        both = [Recorder("a ", log), AsyncRecorder("b ", log)]
        async with AsyncProducer("g", namesrv=scripted_broker.addr, middleware=both) as producer:
            await producer.send(Message(SCRIPTED, b"1"))
            await producer.send(Message(SCRIPTED, b"2"))
            with pytest.raises(InvalidMessage):
                await producer.send("no message")

    asyncio.run(scenario())
    assert [(hook, detail) for hook, _, detail in log] == [
        (hook, body)
        for body in (b"1", b"2")
        for hook in ("a before", "b before", "b after", "a after")
    ]
    assert [
        command.ext["i"].count("TAGS\x01tagged") for command in scripted_broker.requests(SEND)
    ] == [1, 1]


def test_a_refusal_reaches_those_who_let_the_message_pass_and_nothing_is_sent(scripted_broker):
    log = []
    both = [Recorder("a ", log), Recorder("b ", log)]
    both[0].before_send = lambda message, context: log.append("a passed")
    with (
        Producer("g", namesrv=scripted_broker.addr, middleware=both) as producer,
        pytest.raises(InvalidMessage, match="refuses"),
    ):
        producer.send(Message(SCRIPTED, b"refused"))
    assert log == ["a passed", ("a failed", "send", InvalidMessage)]
    assert scripted_broker.requests(SEND) == []


def test_a_send_that_fails_reports_its_error_and_the_id_of_the_message(scripted_broker):
    scripted_broker.answers[SEND] = lambda command: response(
        command.opaque, ResponseCode.NO_PERMISSION
    )
    recorder = Recorder()
    with (
        Producer("g", namesrv=scripted_broker.addr, middleware=[recorder], retries=0) as producer,
        pytest.raises(BrokerError) as raised,
    ):
        producer.send(Message(SCRIPTED, b"x"))
    assert recorder.log == [("before", "send", b"x"), ("failed", "send", BrokerError)]
    assert len(raised.value.msg_id) == 32


def test_of_a_batch_that_is_partly_sent_each_message_is_reported_once(scripted_broker):
    scripted_broker.answers[SEND] = lambda command: (
        response(command.opaque, ResponseCode.NO_PERMISSION)
        if b"bad" in command.body
        else scripted_broker.stored(command)
    )
    recorder = Recorder()
    messages = [Message(SCRIPTED, body, delay_level=1) for body in (b"a", b"bad", b"c")]
    with (
        Producer("g", namesrv=scripted_broker.addr, middleware=[recorder], retries=0) as producer,
        pytest.raises(PartlySent),
    ):
        producer.send_many(messages, timeout_s=1.5)
    after = [entry for entry in recorder.log if entry[0] != "before"]
    assert after == [
        ("batch", "batch", 1),
        ("after", "batch", b"a"),
        ("failed", "batch", BrokerError),
        ("failed", "batch", BrokerError),
    ]


def test_an_error_of_an_after_hook_is_logged_and_harms_nobody(scripted_broker, caplog):
    class Broken(Recorder):
        def after_send(self, message, context, result):
            raise RuntimeError("broken")

    class AsyncBroken(Recorder):
        async def after_send(self, message, context, result):
            raise RuntimeError("broken")

    for broken in (Broken(), AsyncBroken()):
        last = Recorder()
        with Producer("g", namesrv=scripted_broker.addr, middleware=[last, broken]) as producer:
            producer.send(Message(SCRIPTED, b"x"))
        assert ("after", "send", b"x") in last.log
    assert (
        sum("after_send failed and is ignored" in one.getMessage() for one in caplog.records) == 2
    )


def test_a_request_and_its_reply_have_hooks(cluster, topic, group):
    asked, replied = Recorder(), Recorder()
    settings = {"namesrv": cluster.namesrv}
    replying = Producer("r", middleware=[replied], **settings)
    consumer = PushConsumer(group, consume_from=ConsumeFrom.FIRST, **settings)
    consumer.subscribe(topic, "*", lambda messages: replying.reply(messages[0], b"yes") and None)
    with Producer("q", middleware=[asked], **settings) as producer, replying, consumer:
        assert producer.request(Message(topic, b"well?"), timeout_s=30).body == b"yes"
        with pytest.raises(RemotingTimeout):
            producer.request(Message(f"{topic}-nobody-reads", b"x"), timeout_s=0.5)
    assert asked.log[:2] == [("before", "request", b"well?"), ("after", "request", b"well?")]
    assert [hook for hook, kind, _ in replied.log if kind == "reply"] == ["before", "after"]


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_the_handlers_of_a_blocking_consumer_have_hooks(cluster, topic, group, tmp_path, order):
    recorder, handled = Recorder(), []

    def handle(messages):
        handled.append(messages[0].body)
        if messages[0].body == b"fails" and handled.count(b"fails") == 1:
            raise KeyError("it fails once")
        return ConsumeStatus.CONSUME_SUCCESS if messages[0].body == b"status" else None

    settings = {"state_dir": tmp_path} if order == "key" else {}
    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, middleware=[recorder],
        order=order, suspend_ms=50, **settings,
    )  # fmt: skip
    consumer.subscribe(topic, "*", handle)
    with Producer("g", namesrv=cluster.namesrv) as producer, consumer:
        for body in (b"plain", b"status", b"fails"):
            producer.send(Message(topic, body))
        until(lambda: handled.count(b"fails") == 2 and len(handled) == 4)
    seen = Counter((hook, detail) for hook, kind, detail in recorder.log if kind == "handle")
    assert seen == {
        ("before", b"plain"): 1,
        ("before", b"status"): 1,
        ("before", b"fails"): 2,
        ("after", None): 2,
        ("after", ConsumeStatus.CONSUME_SUCCESS): 1,
        ("failed", KeyError): 1,
    }
    assert all(name.startswith("cometmq-") for name in recorder.threads)


def test_a_before_hook_that_raises_counts_as_a_failure_of_the_handler(cluster, topic, group):
    async def scenario():
        recorder, handled = AsyncRecorder(), asyncio.Event()

        async def handle(messages):
            assert messages[0].reconsume_times == 1
            handled.set()

        consumer = AsyncPushConsumer(
            group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, middleware=[recorder]
        )
        consumer.subscribe(topic, "*", handle)
        async with AsyncProducer("g", namesrv=cluster.namesrv) as producer, consumer:
            await producer.send(Message(topic, b"not handled"))
            await asyncio.wait_for(handled.wait(), 60)
        assert recorder.log == [("before", "handle", b"not handled"), ("after", "handle", None)]

    asyncio.run(scenario())


def test_a_plain_handler_refuses_async_hooks_at_the_start(scripted_broker):
    consumer = PushConsumer("c", namesrv=scripted_broker.addr, middleware=[AsyncRecorder()])
    consumer.subscribe(SCRIPTED, "*", lambda messages: None)
    with pytest.raises(SettingsError, match=r"AsyncRecorder .* must be plain"):
        consumer.start()


def test_a_poll_has_its_hook_in_blocking_and_asyncio_consumers(cluster, topic, group):
    recorder = AsyncRecorder()
    settings = {"namesrv": cluster.namesrv, "consume_from": "first", "middleware": [recorder]}

    async def poll_async(queue):
        async with AsyncLitePullConsumer(group, **settings) as consumer:
            consumer.assign([queue])
            return await consumer.poll(30.0)

    with Producer("g", namesrv=cluster.namesrv) as producer:
        queue = producer.send(Message(topic, b"polled")).queue
    with LitePullConsumer(f"{group}-other", **settings) as consumer:
        consumer.assign([queue])
        assert next(iter(consumer)).body == b"polled"
    assert [one.body for one in asyncio.run(poll_async(queue))] == [b"polled"]
    assert recorder.log == [("polled", "poll", b"polled")] * 2


@pytest.mark.parametrize("wrong", [5, "text", [object()], [Recorder], None])
def test_only_middleware_is_accepted(wrong):
    with pytest.raises(SettingsError, match="middleware"):
        Producer("g", namesrv="127.0.0.1:1", middleware=wrong)


@pytest.mark.parametrize("order", ["none", "queue"])
def test_what_handlers_have_done_is_reported_on_the_loop(cluster, topic, group, order):
    reports, threads = [], set()

    class Counting(Middleware):
        def after_run(self, topic, calls, spent_s, done, failed):
            reports.append((topic, calls, done, failed))
            threads.add(threading.current_thread().name)
            raise RuntimeError("nobody minds")

    handled = []

    def handle(messages):
        handled.extend(messages)
        if len(handled) == 1:
            raise KeyError("it fails once")

    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, consume_from="first", middleware=[Counting()], order=order,
        suspend_ms=50,
    )  # fmt: skip
    consumer.subscribe(topic, "*", handle)
    with Producer("g", namesrv=cluster.namesrv) as producer, consumer:
        queue = producer.queues(topic)[0]
        for body in (b"1", b"2", b"3"):
            producer.send(Message(topic, body), queue=queue)
        until(lambda: sum(done for _, _, done, _ in reports) == 3)
    assert sum(failed for _, _, _, failed in reports) == 1
    assert sum(calls for _, calls, _, _ in reports) == 4
    retried = {f"%RETRY%{group}"} if order == "none" else set()
    assert {found for found, _, _, _ in reports} == {topic} | retried
    assert threads == {"cometmq-loop"}
