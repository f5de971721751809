"""Wrong arguments, each in its turn: one sentence that names them, and nothing is sent before it.

Walks the public callables of both colours: for each there are arguments that fit, and for each
argument several that do not. What is raised must be one of our errors, or a TypeError or ValueError
that says which argument is wrong. A callable that is new must be added here, or the test fails.
"""

import asyncio
import inspect
import re

import pytest

import cometmq
from client.received_messages import received
from client.scripted_broker import BROKER, TOPIC, ScriptedBroker
from cometmq import (
    Admin,
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    BreakerLimits,
    FailurePolicy,
    FlowLimits,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageSelector,
    OnFailure,
    Producer,
    PushConsumer,
    RetryLater,
    TableSink,
    by_hash,
)
from cometmq.client.consumer.push_options import PushSettings
from cometmq.client.polling.lite_pull_options import LitePullSettings
from cometmq.client.producer.producer_options import ProducerSettings
from cometmq.errors import CometError
from cometmq.model.parking import ParkedMessage, SelectionArguments
from cometmq.rules.failures.failure_policy import FailureAction
from cometmq.wire.codes import RequestCode

HARMLESS = {
    RequestCode.HEART_BEAT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
}
"""What a client asks by itself, wrong arguments or not."""

TEXT = [None, 5, b"x", ["x"]]
NAME = [*TEXT, "", "a b"]
BODY = [None, "text", 5, b""]
NUMBER = [None, "x", -1, 1.5, True]
SECONDS = [None, "x", -1, float("nan"), True]
FLAG = ["x", 5]
QUEUE_NUMBER = ["x", -1, 0, 1.5, 65_537]
QUEUE = [None, 5, "q", ("t", "b"), MessageQueue(TOPIC, BROKER, "x"), MessageQueue(5, BROKER, 0)]
QUEUES = [None, 5, "x", [5], MessageQueue(TOPIC, BROKER, 0)]
MESSAGE = [None, 5, "x", b"x", [1]]
MESSAGES = [None, 5, "x", [5], Message(TOPIC, b"x")]
FUNCTION = [None, 5, "x"]
EXPRESSION = [None, 5, b"x", ["a"], MessageSelector(5), MessageSelector("a > 1", "XPATH")]
OFFSETS = [5, "x", [1], {1: 2}, {MessageQueue(TOPIC, BROKER, 0): "x"}]
CHANGES = [None, 5, "x", {}, {"a b": "c"}, {"a": 5}]
USER = [*TEXT, ""]
SERVERS = [5, "x", [5]]
BETWEEN = {"begin_ms": NUMBER, "end_ms": NUMBER, "max_count": [*NUMBER, 0]}

CHOSEN = {
    "key": TEXT[1:],
    "msg_id": TEXT[1:],
    "reason": TEXT[1:],
    "since_ms": NUMBER,
    "until_ms": NUMBER,
    "places": [5, [5], ["x"]],
}
"""What chooses among messages of a group."""
LEAVING = {"rate": ["x", -1, float("nan"), True], "dry_run": FLAG, "progress": FUNCTION[1:]}
PARKED = [None, 5, "x"]

message = Message(TOPIC, b"x")
queue = MessageQueue(TOPIC, BROKER, 0)
a_parked = ParkedMessage(
    topic=TOPIC, queue_id=0, offset=0, order=0, key="k", position=0, broker_name=BROKER
)
asked = received(topic=TOPIC, broker_name=BROKER)
a_queue = [5, "q", ("t", "b"), MessageQueue("other", BROKER, 0), MessageQueue(TOPIC, BROKER, "x")]

BAD_FIELDS = [
    ("topic", NAME),
    ("body", BODY),
    ("tags", [5, b"x", "", "a\x01b"]),
    ("keys", [5, [5], b"x"]),
    ("sharding_key", [5, b"x", ""]),
    ("delay_level", [None, "x", -1, 1.5]),
    ("flag", [None, "x", 1.5]),
    ("properties", [5, "x", {5: "x"}, {"x": 5}, {"TAGS": "x"}]),
    ("wait_store_ok", ["x", None]),
]
WAYS = ("send", "send_async", "send_oneway", "request", "send_batch", "send_many", "transaction")

SENDING = {"message": MESSAGE, "timeout_s": SECONDS, "queue": a_queue}
PRODUCER = {
    "send": ((message,), SENDING),
    "send_async": ((message,), SENDING),
    "send_oneway": ((message,), {"message": MESSAGE, "queue": a_queue}),
    "send_batch": (([message],), {"messages": MESSAGES, "timeout_s": SECONDS}),
    "send_many": (([message],), {"messages": MESSAGES, "timeout_s": SECONDS}),
    "send_in_transaction": (
        (message, lambda message: True),
        {"message": MESSAGE, "local": FUNCTION, "timeout_s": SECONDS},
    ),
    "request": ((message,), {"message": MESSAGE, "timeout_s": SECONDS}),
    "reply": (
        (asked, b"x"),
        {
            "request": [*MESSAGE, message],
            "body": BODY,
            "timeout_s": SECONDS,
            "properties": [5, {"a": 1}, {"KEYS": "x"}],
        },
    ),
    "queues": ((TOPIC,), {"topic": NAME}),
    "recall": ((TOPIC, "handle"), {"topic": NAME, "handle": TEXT, "timeout_s": SECONDS}),
}
PUSH = {
    "subscribe": (
        (TOPIC, "*", print),
        {
            "topic": NAME,
            "expression": EXPRESSION,
            "handler": FUNCTION,
            "on_failure": [5, "x", {Exception: 5}, {"x": OnFailure.skip()}],
        },
    ),
    "wait": ((), {"timeout_s": ["x", -1, float("nan")]}),
    "why": ((), {"seconds": SECONDS}),
    "resize": ((4,), {"threads": ["x", 0, -1, 1001, 2.5, True, None]}),
}
LITE = {
    "poll": ((0.01,), {"timeout_s": ["x", None, float("nan")], "max_count": [0, -1, "x", 1.5]}),
    "commit": ((), {"offsets": OFFSETS}),
    "committed": ((queue,), {"queue": QUEUE}),
    "position": ((queue,), {"queue": QUEUE}),
    "seek": ((queue, 0), {"queue": QUEUE, "offset": NUMBER}),
    "seek_to_begin": ((queue,), {"queue": QUEUE}),
    "seek_to_end": ((queue,), {"queue": QUEUE}),
    "pause": (([queue],), {"queues": QUEUES}),
    "resume": (([queue],), {"queues": QUEUES}),
    "fetch_message_queues": ((TOPIC,), {"topic": NAME}),
    "offset_for_timestamp": ((queue, 0), {"queue": QUEUE, "timestamp_ms": NUMBER}),
    "min_offset": ((queue,), {"queue": QUEUE}),
    "max_offset": ((queue,), {"queue": QUEUE}),
    "pull": (
        (queue,),
        {
            "queue": QUEUE,
            "expression": EXPRESSION,
            "offset": NUMBER,
            "max_count": [*NUMBER, 0],
            "block_s": [None, "x", -1, 31, float("nan")],
        },
    ),
    "assign": (([queue],), {"queues": QUEUES}),
}
LITE_UNSTARTED = {"subscribe": ((TOPIC,), {"topic": NAME, "expression": EXPRESSION})}
ADMIN = {
    "topics": ((), {"with_system": FLAG}),
    "create_topic": (
        (TOPIC,),
        {
            "topic": NAME,
            "queues": [*NUMBER, 0],
            "read_queues": QUEUE_NUMBER,
            "write_queues": QUEUE_NUMBER,
            "perm": [*NUMBER, 8],
            "order": FLAG,
            "brokers": [5, "x", [5]],
        },
    ),
    "alter_topic": (
        (TOPIC,),
        {
            "topic": NAME,
            "queues": QUEUE_NUMBER,
            "read_queues": QUEUE_NUMBER,
            "write_queues": QUEUE_NUMBER,
            "perm": ["x", -1, 1.5, 8],
            "order": FLAG,
            "brokers": [5, "x", [5]],
            "may_hide_messages": FLAG,
        },
    ),
    "create_ordered_topic": (
        (TOPIC,),
        {"topic": NAME, "perm": [*NUMBER, 8], "groups": [5, "x", [5], ["a b"]]},
    ),
    "queues": ((TOPIC,), {"topic": NAME}),
    "topic_stats": ((TOPIC,), {"topic": NAME}),
    "group_progress": (("g",), {"group": NAME}),
    "group_offsets": (("g", TOPIC), {"group": NAME, "topic": NAME}),
    "consume_stats": (("g", TOPIC), {"group": NAME, "topic": NAME}),
    "set_group_offsets": (("g", {queue: 0}), {"group": NAME, "offsets": [None, *OFFSETS]}),
    "broker_status": ((BROKER,), {"broker": [*TEXT, ""]}),
    "replication_status": ((BROKER,), {"broker": [*TEXT, ""]}),
    "broker_config": ((BROKER,), {"broker": [*TEXT, ""]}),
    "set_broker_config": ((BROKER, {"a": "b"}), {"broker": [*TEXT, ""], "changes": CHANGES}),
    "set_name_server_config": (({"a": "b"},), {"changes": CHANGES}),
    "wipe_write_permission": ((BROKER,), {"broker": [*TEXT, ""]}),
    "restore_write_permission": ((BROKER,), {"broker": [*TEXT, ""]}),
    "broker_addrs": ((), {"brokers": [5, "x", [5]]}),
    "delete_topic": ((TOPIC,), {"topic": NAME}),
    "topic_config": ((TOPIC,), {"topic": NAME}),
    "topic_route": ((TOPIC,), {"topic": NAME}),
    "topic_groups": ((TOPIC,), {"topic": NAME}),
    "topic_traffic": ((TOPIC,), {"topic": NAME}),
    "group_config": (("g",), {"group": NAME}),
    "create_group": (("g",), {"group": NAME}),
    "alter_group": (("g",), {"group": NAME}),
    "delete_group": (("g",), {"group": NAME, "keep_offsets": FLAG}),
    "group_members": (("g",), {"group": NAME, "running": FLAG}),
    "member_info": (("g", "c"), {"group": NAME, "client_id": TEXT, "stacks": FLAG}),
    "group_lag": (("g",), {"group": NAME, "topic": NAME[1:], "owners": FLAG}),
    "reset_group": (
        ("g", TOPIC, "latest"),
        {"group": NAME, "topic": NAME[1:], "to": NUMBER, "at_ms": FLAG, "dry_run": FLAG},
    ),
    "clone_group": (("g", "h"), {"source": NAME, "target": NAME, "topic": NAME[1:]}),
    "committed_offsets": ((), {"groups": [5, "x", [5]]}),
    "restore_offsets": (
        ({"g": {queue: 0}},),
        {"offsets": [5, "x", {"g": 5}, {"a b": {}}, {"g": {1: 2}}], "dry_run": FLAG},
    ),
    "message": ((TOPIC, "id"), {"topic": NAME, "msg_id": TEXT}),
    "message_at": ((queue, 0), {"queue": QUEUE, "offset": NUMBER}),
    "messages_by_key": ((TOPIC, "k"), {"topic": NAME, "key": TEXT, **BETWEEN}),
    "messages_by_time": ((TOPIC, 0, 1), {"topic": NAME, **BETWEEN}),
    "offsets_at": ((TOPIC, 0), {"topic": NAME, "at_ms": NUMBER}),
    "peek": (
        (TOPIC,),
        {"topic": NAME, "max_count": [*NUMBER, 0], "oldest": FLAG, "queue": QUEUE[1:]},
    ),
    "pull": (
        (queue, 0),
        {
            "queue": QUEUE,
            "offset": NUMBER,
            "max_count": [*NUMBER, 0, 1025],
            "block_s": [None, "x", -1, 31, float("nan")],
        },
    ),
    "message_trace": (("id",), {"msg_id": TEXT, "trace_topic": NAME}),
    "hand_to_member": (
        ("g", asked),
        {"group": NAME, "message": MESSAGE, "client_id": [5, b"x"]},
    ),
    "create_user": (
        ("u", "p"),
        {"username": USER, "password": USER, "super_user": FLAG, "servers": SERVERS},
    ),
    "update_user": (
        ("u",),
        {
            "username": USER,
            "password": USER[1:],
            "super_user": FLAG,
            "enabled": FLAG,
            "servers": SERVERS,
        },
    ),
    "delete_user": (("u",), {"username": USER, "servers": SERVERS}),
    "users": ((), {"part": TEXT, "servers": SERVERS}),
    "set_policy": (
        ("u", "Topic:x", ["Pub"]),
        {
            "username": USER,
            "resource": [*USER, "x"],
            "actions": [None, 5, "Pub", [5], ["x"], []],
            "allow": FLAG,
            "source_ips": SERVERS,
            "servers": SERVERS,
        },
    ),
    "delete_policy": (("u",), {"username": USER, "resource": TEXT[1:], "servers": SERVERS}),
    "policies": ((), {"user": TEXT, "resource": TEXT, "servers": SERVERS}),
    "unlock_queues": (("g", "c", [queue]), {"group": NAME, "client_id": TEXT, "queues": QUEUES}),
    "why": (("g",), {"group": NAME, "seconds": SECONDS}),
    "epochs": ((BROKER,), {"broker": [*TEXT, ""]}),
    "promote": (
        (BROKER,),
        {"broker": [*TEXT, ""], "force": FLAG, "may_lose": FLAG, "timeout_s": SECONDS},
    ),
    "resend_records": ((BROKER, []), {"broker": [*TEXT, ""], "records": [None, 5, "x", [5]]}),
    "parked": (("g",), {"group": NAME, **CHOSEN}),
    "parked_message": (("g", a_parked), {"group": NAME, "parked": PARKED}),
    "repair_parked": (("g", a_parked, b"x"), {"group": NAME, "parked": PARKED, "body": TEXT[:2]}),
    "release_parked": (("g",), {"group": NAME, **CHOSEN, **LEAVING, "wait_s": SECONDS}),
    "redrive_parked": (
        ("g",),
        {"group": NAME, "to": NAME[1:], **CHOSEN, **LEAVING, "wait_s": SECONDS},
    ),
    "drop_parked": (("g",), {"group": NAME, **CHOSEN, "dry_run": FLAG}),
    "open_dead_letters": (("g",), {"group": NAME, **CHOSEN}),
    "find_dead_letters": (
        ("g",),
        {"group": NAME, "max_count": [*NUMBER, 0, 10_001], "oldest": FLAG, **CHOSEN},
    ),
    "redrive_dead_letters": (
        ("g",),
        {
            "group": NAME,
            "to": NAME[1:],
            "to_group": FLAG,
            **CHOSEN,
            **LEAVING,
            "repaired": [5, "x", {1: b"x"}, {("b", 0, 0): "x"}],
        },
    ),
    "redrive_dead_letters_by": (
        ("g", len, {("b", 0, 0)}),
        {"group": NAME, "send": [5, "x"], "places": [5, {1}]},
    ),
    "drop_dead_letters": (("g",), {"group": NAME, **CHOSEN, "dry_run": FLAG}),
}
TRANSACTION = {
    "send": ((message,), {"message": MESSAGE, "timeout_s": SECONDS}),
    "end": ((True,), {"state": [5, "x"], "timeout_s": SECONDS}),
}
FREE = {
    by_hash: (("k",), {"key": [None, 1.5, b"x", True], "is_long": FLAG}),
    BreakerLimits: (
        (),
        {
            "keys": [None, "x", 1, 2.5, True],
            "share": [None, "x", 0, 2, float("nan"), True],
            "results": [None, "x", 1, 50.5],
            "memory_s": SECONDS,
            "pause_s": SECONDS,
            "pause_most_s": SECONDS,
            "outage_most_s": SECONDS,
        },
    ),
    FlowLimits: (
        (),
        {
            "count": [*NUMBER, 0],
            "size_mib": [*NUMBER, 0],
            "span": [*NUMBER, 0],
            "topic_count": ["x", -1, 0, 1.5],
            "topic_size_mib": ["x", -1, 0, 1.5],
        },
    ),
    FailurePolicy: (
        (),
        {
            "action": [None, 5, "SKIP"],
            "after": NUMBER,
            "pause_ms": ["x", -1, 1.5],
            "pause_most_ms": ["x", -1, 1.5],
        },
    ),
    OnFailure.block: ((), {"pause_ms": ["x", -1, 1.5], "pause_most_ms": ["x", -1, 1.5]}),
    OnFailure.retry: (
        (1,),
        {"times": NUMBER, "then": [5, "x"], "pause_ms": ["x", 1], "pause_most_ms": ["x", 1]},
    ),
    OnFailure.dead_letter: ((), {"after": NUMBER}),
    OnFailure.skip: ((), {"after": NUMBER}),
    OnFailure.stop: ((), {"after": NUMBER}),
    OnFailure.store: ((print,), {"sink": FUNCTION, "after": NUMBER}),
    TableSink: (
        (print, "t"),
        {"connect": FUNCTION, "table": [None, 5, "a b", ""], "paramstyle": [None, 5, "x", []]},
    ),
    TableSink(print, "t").schema: ((), {"body_type": [None, 5]}),
    RetryLater: ((), {"delay_level": [None, "x", 1.5, -2], "suspend_ms": ["x", 1.5, -5]}),
    MessageSelector.by_tag: (("a",), {"expression": [None, 5, b"x"]}),
    MessageSelector.by_sql: (("a > 1",), {"condition": [None, 5, b"x"]}),
}
"""What needs no client."""
ASKED_WITHOUT = {"clusters", "groups", "producers", "name_server_config", "dead_letters"}
COLOURS = [
    (
        Producer,
        AsyncProducer,
        PRODUCER,
        {"transaction", "start", "stop", "stats", "metric_samples"},
    ),
    (
        PushConsumer,
        AsyncPushConsumer,
        PUSH,
        {
            "start",
            "run",
            "stop",
            "stop_soon",
            "pause",
            "resume",
            "stats",
            "metric_samples",
            "handler",
        },
    ),
    (LitePullConsumer, AsyncLitePullConsumer, {**LITE, **LITE_UNSTARTED}, {"start", "stop"}),
    (
        Admin,
        AsyncAdmin,
        ADMIN,
        {"start", "stop", *ASKED_WITHOUT},
    ),
]


def wrongs(table):
    """Each callable with one wrong argument: its name, what fits, which is wrong, and how."""
    return [
        pytest.param(name, fitting, argument, value, id=f"{name}-{argument}={value!r:.30}")
        for name, (fitting, wrong) in table.items()
        for argument, values in wrong.items()
        for value in values
    ]


def call(function, fitting, argument, value):
    signature = inspect.signature(function)
    bound = signature.bind(*fitting)
    kinds = {name: one.kind for name, one in signature.parameters.items()}
    if argument not in kinds and argument in SelectionArguments.__annotations__:
        return function(*bound.args, **{argument: value})
    bound.arguments[argument] = value
    by_name = [inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert kinds[argument] in by_name
    return function(**bound.arguments)


def check(error, argument):
    """Whether the error is a sentence that a user can act on."""
    text = str(error)
    assert isinstance(error, CometError | TypeError | ValueError), repr(error)
    raw = r"object (is not|has no)|not supported between|unhashable|argument must be|'NoneType'"
    assert text, repr(error)
    assert "\n" not in text
    assert not re.search(raw, text), f"a raw error: {error!r}"
    if not isinstance(error, CometError):
        assert argument in text, repr(error)


@pytest.fixture(scope="module")
def scripted_broker():
    scripted_broker = ScriptedBroker()
    yield scripted_broker
    scripted_broker.close()


def sent(scripted_broker):
    return [
        RequestCode(one.code).name
        for one in list(scripted_broker.received)
        if one.code not in HARMLESS
    ]


def refused(scripted_broker, function, fitting, argument, value):
    before = len(sent(scripted_broker))

    def whole():
        found = call(function, fitting, argument, value)
        return found.result(10) if hasattr(found, "result") else found

    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what this is about
        whole()
    check(caught.value, argument)
    assert sent(scripted_broker)[before:] == []


async def refused_async(scripted_broker, function, fitting, argument, value):
    before = len(sent(scripted_broker))

    async def whole():
        found = call(function, fitting, argument, value)
        return await found if inspect.isawaitable(found) else found

    with pytest.raises(Exception) as caught:  # noqa: PT011
        await whole()
    check(caught.value, argument)
    assert sent(scripted_broker)[before:] == []


@pytest.fixture(scope="module")
def producer(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        yield producer


@pytest.mark.parametrize(("name", "fitting", "argument", "value"), wrongs(PRODUCER))
def test_a_blocking_producer_refuses(scripted_broker, producer, name, fitting, argument, value):
    refused(scripted_broker, getattr(producer, name), fitting, argument, value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}={value!r:.20}")
        for field, values in BAD_FIELDS
        for value in values
    ],
)
def test_a_bad_message_is_refused_by_every_way_to_send(
    scripted_broker, producer, way, field, value
):
    def send(made):
        if way == "transaction":
            return producer.transaction().send(made)
        several = way in ("send_batch", "send_many")
        return getattr(producer, way)([made, message] if several else made)

    def whole():
        found = send(Message(**({"topic": TOPIC, "body": b"x"} | {field: value})))
        return found.result(10) if hasattr(found, "result") else found

    before = len(sent(scripted_broker))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        whole()
    check(caught.value, field)
    assert sent(scripted_broker)[before:] == []


@pytest.fixture(scope="module")
def lite(scripted_broker):
    with LitePullConsumer("g", namesrv=scripted_broker.addr) as consumer:
        consumer.assign([queue])
        yield consumer


@pytest.mark.parametrize(("name", "fitting", "argument", "value"), wrongs(LITE))
def test_a_blocking_lite_pull_consumer_refuses(
    scripted_broker, lite, name, fitting, argument, value
):
    refused(scripted_broker, getattr(lite, name), fitting, argument, value)
    assert lite.assigned in ([], [queue])


@pytest.fixture(scope="module")
def admin(scripted_broker):
    with Admin(namesrv=scripted_broker.addr) as admin:
        yield admin


@pytest.mark.parametrize(("name", "fitting", "argument", "value"), wrongs(ADMIN))
def test_a_blocking_admin_refuses(scripted_broker, admin, name, fitting, argument, value):
    refused(scripted_broker, getattr(admin, name), fitting, argument, value)


@pytest.mark.parametrize(("name", "fitting", "argument", "value"), wrongs(TRANSACTION))
def test_a_blocking_transaction_refuses(scripted_broker, producer, name, fitting, argument, value):
    refused(scripted_broker, getattr(producer.transaction(), name), fitting, argument, value)


UNSTARTED = {PushConsumer: PUSH, LitePullConsumer: LITE_UNSTARTED}


@pytest.mark.parametrize(("kind", "table"), UNSTARTED.items())
def test_consumers_refuse_before_they_start(scripted_broker, kind, table):
    for name, fitting, argument, value in (one.values for one in wrongs(table)):
        if name != "wait":
            made = kind("g", namesrv=scripted_broker.addr)
            try:
                refused(scripted_broker, getattr(made, name), fitting, argument, value)
            except BaseException as error:
                raise AssertionError(f"{name}({argument}={value!r}): {error}") from error


def test_a_running_push_consumer_refuses(scripted_broker):
    consumer = PushConsumer("g2", namesrv=scripted_broker.addr)
    consumer.subscribe(TOPIC, "*", print)
    with consumer:
        for value in PUSH["wait"][1]["timeout_s"]:
            refused(scripted_broker, consumer.wait, (), "timeout_s", value)


ASYNC = [
    (AsyncProducer, PRODUCER, ()),
    (AsyncLitePullConsumer, LITE, ([queue],)),
    (AsyncAdmin, ADMIN, ()),
]


@pytest.mark.parametrize(("kind", "table", "assigned"), ASYNC)
def test_the_asyncio_face_refuses_the_same(scripted_broker, kind, table, assigned):
    async def scenario():
        client = (
            kind(namesrv=scripted_broker.addr)
            if kind is AsyncAdmin
            else kind("g3", namesrv=scripted_broker.addr)
        )
        async with client:
            for queues in assigned:
                client.assign(queues)
            for name, fitting, argument, value in (one.values for one in wrongs(table)):
                try:
                    await refused_async(
                        scripted_broker, getattr(client, name), fitting, argument, value
                    )
                except AssertionError as error:
                    raise AssertionError(f"{name}({argument}={value!r}): {error}") from error
            if kind is AsyncProducer:
                for name, fitting, argument, value in (one.values for one in wrongs(TRANSACTION)):
                    method = getattr(client.transaction(), name)
                    await refused_async(scripted_broker, method, fitting, argument, value)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    ("function", "fitting", "argument", "value"),
    [
        pytest.param(one, fitting, argument, value, id=f"{one.__name__}-{argument}={value!r:.20}")
        for one, (fitting, wrong) in FREE.items()
        for argument, values in wrong.items()
        for value in values
    ],
)
def test_what_needs_no_client_refuses(scripted_broker, function, fitting, argument, value):
    if function is FailurePolicy and argument != "action":
        function = lambda **given: FailurePolicy(action=FailureAction.SKIP, **given)  # noqa: E731
        with pytest.raises((CometError, TypeError, ValueError)) as caught:
            function(**{argument: value})
        check(caught.value, argument)
    else:
        refused(scripted_broker, function, fitting, argument, value)


SETTINGS = [
    (Producer, ProducerSettings),
    (AsyncProducer, ProducerSettings),
    (PushConsumer, PushSettings),
    (AsyncPushConsumer, PushSettings),
    (LitePullConsumer, LitePullSettings),
    (AsyncLitePullConsumer, LitePullSettings),
]
OBJECT = object()


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_every_setting_refuses_what_it_cannot_be(kind, settings):
    for name in settings.__annotations__:
        for value in (OBJECT, 3.5j, [OBJECT]):
            given = {"namesrv": "127.0.0.1:1", name: value}
            if name == "key":
                given["order"] = "key"
            try:
                kind("g", **given)
            except (CometError, TypeError, ValueError) as error:
                caught = error
            else:
                raise AssertionError(f"{name}={value!r} is taken")
            check(caught, name)
            assert name in str(caught), f"{name}={value!r}: {caught}"
    for group in NAME:
        with pytest.raises(CometError, match="group"):
            kind(group, namesrv="127.0.0.1:1")


@pytest.mark.parametrize("kind", [Admin, AsyncAdmin])
def test_an_admin_refuses_settings_that_cannot_be(kind):
    for given in ({"namesrv": 5}, {"namesrv": [5]}, {"namesrv": "x"}):
        with pytest.raises(CometError, match=r"namesrv|address"):
            kind(**given)
    for timeout_s in SECONDS:
        with pytest.raises(CometError, match="timeout_s"):
            kind(namesrv="127.0.0.1:1", timeout_s=timeout_s)


@pytest.mark.parametrize(("blocking", "asyncio_one", "table", "without"), COLOURS)
def test_nothing_public_is_left_out(blocking, asyncio_one, table, without):
    """A method that is new must say here what does not fit."""
    for kind in (blocking, asyncio_one):
        methods = {
            name: found
            for name, found in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        assert set(methods) == set(table) | without
        for name, (_, wrong) in table.items():
            taken = inspect.signature(methods[name]).parameters.values()
            fixed = {one.name for one in taken if one.kind is not inspect.Parameter.VAR_KEYWORD}
            if any(one.name == "selection" for one in taken):
                fixed |= set(SelectionArguments.__annotations__)
            assert set(wrong) == fixed - {"self"}, name
    functions = {name for name in cometmq.__all__ if inspect.isfunction(getattr(cometmq, name))}
    assert functions == {"by_hash"}
