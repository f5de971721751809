"""Second starts, the time of one attempt, the first error, and how often routes are fetched."""

from __future__ import annotations

import asyncio
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest

from client.scripted_broker import TOPIC, ScriptedBroker
from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncProducer,
    ClientError,
    InvalidMessage,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RemotingTimeout,
    SettingsError,
)
from cometmq.errors import BrokerError
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.testing.cluster import LocalCluster

CLIENTS: list[tuple[type[Any], tuple[str, ...]]] = [
    (Producer, ("p",)),
    (PushConsumer, ("g",)),
    (LitePullConsumer, ("l",)),
    (Admin, ()),
]


@pytest.mark.parametrize(("client", "args"), CLIENTS)
def test_a_second_start_is_an_error_and_changes_nothing(
    cluster: LocalCluster, topic: str, client: type[Any], args: tuple[str, ...]
) -> None:
    made = client(*args, namesrv=cluster.namesrv)
    if client is PushConsumer:
        made.subscribe(topic, "*", print)
    with made:
        with pytest.raises(ClientError, match="is started already: 'with' starts it"):
            made.start()
        if client is Producer:
            made.send(Message(topic, b"still running"))
    with made:  # once more, after its stop
        pass


def test_a_second_start_of_an_asyncio_client_is_one_too(cluster: LocalCluster) -> None:
    async def twice() -> None:
        async with AsyncProducer("p", namesrv=cluster.namesrv) as producer:
            with pytest.raises(ClientError, match="this producer is started already"):
                await producer.start()

    asyncio.run(twice())


class Sends:
    """Answers of a scripted broker to sends: the first ones by a script, the others stored."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self.script: list[Callable[[Command], Command | None]] = []
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            broker.answers[code] = self.answer

    def answer(self, command: Command) -> Command | None:
        return (self.script.pop(0) if self.script else self._broker.stored)(command)


def refused(remark: str) -> Callable[[Command], Command]:
    return lambda command: response(command.opaque, ResponseCode.SYSTEM_BUSY, remark=remark)


def silence(command: Command) -> None: ...


KINDS: dict[str, Callable[[Producer, str | None, float], object]] = {
    "send": lambda producer, key, s: producer.send(Message(TOPIC, b"x", sharding_key=key), s),
    "send_async": lambda producer, key, s: producer.send_async(
        Message(TOPIC, b"x", sharding_key=key), s
    ).result(60),
    "send_batch": lambda producer, key, s: producer.send_batch(
        [Message(TOPIC, b"x", sharding_key=key)] * 2, s
    ),
}


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_attempt_takes_its_own_time_and_the_next_one_stores(
    scripted_broker: ScriptedBroker, kind: str, key: str | None
) -> None:
    sends = Sends(scripted_broker)
    with Producer("p", namesrv=scripted_broker.addr, attempt_timeout_s=0.4) as producer:
        KINDS[kind](producer, key, 30.0)  # from now on there is a route and a connection
        sends.script = [silence, silence]
        begun = time.monotonic()
        KINDS[kind](producer, key, 60.0)
        assert 0.8 <= time.monotonic() - begun < 30
        assert not sends.script


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_error_is_kept_and_shown(scripted_broker: ScriptedBroker, kind: str) -> None:
    sends = Sends(scripted_broker)
    with Producer("p", namesrv=scripted_broker.addr, retries=1) as producer:
        KINDS[kind](producer, None, 30.0)
        sends.script = [refused("the disk is slow"), refused("the log is locked")]
        with pytest.raises(BrokerError, match=r"locked; the first attempt: .* is slow") as caught:
            KINDS[kind](producer, None, 30.0)
        first = caught.value.first
        assert isinstance(first, BrokerError)
        assert first.remark == "the disk is slow"
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), str(copy.first)) == (str(caught.value), str(first))
        sends.script = [refused("busy"), refused("busy")]
        with pytest.raises(BrokerError, match=r"busy$"):  # the same once
            KINDS[kind](producer, None, 30.0)
        sends.script = [refused("the disk is slow"), silence]
        with pytest.raises(RemotingTimeout, match=r"the first attempt: .* is slow"):
            KINDS[kind](producer, None, 1.0)


def test_routes_are_fetched_as_often_as_the_setting_says(scripted_broker: ScriptedBroker) -> None:
    def asked() -> int:
        return len(scripted_broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))

    with Producer("p", namesrv=scripted_broker.addr, route_refresh_s=0.1) as producer:
        producer.send(Message(TOPIC, b"x"))
        before = asked()
        until(lambda: asked() > before + 5)
    for name in ("route_refresh_s", "connect_timeout_s", "attempt_timeout_s"):
        with pytest.raises(SettingsError, match=f"{name} is 0; it must be a number of seconds"):
            Producer("p", namesrv="127.0.0.1:1", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("tag", ["A||B", " A", "A ", "*", "||"])
def test_a_tag_that_nobody_can_subscribe_to_is_refused(
    scripted_broker: ScriptedBroker, tag: str
) -> None:
    with Producer("p", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"x"))
        for send in (producer.send, lambda one: producer.send_batch([one, one])):
            with pytest.raises(InvalidMessage, match="is one that nobody can subscribe to"):
                send(Message(TOPIC, b"x", tags=tag))


def test_keys_come_back_as_they_went_in(cluster: LocalCluster, topic: str, group: str) -> None:
    keys = ["order-7", "ä", "a:b"]
    seen: list[MessageExt] = []
    consumer = PushConsumer(group, namesrv=cluster.namesrv, consume_from="first")
    consumer.subscribe(topic, "*", seen.extend)
    with Producer("p", namesrv=cluster.namesrv) as producer, consumer:
        producer.send(Message(topic, b"x", keys=keys))
        producer.send(Message(topic, b"x", keys="one"))
        until(lambda: len(seen) == 2)
    assert sorted([one.keys for one in seen]) == sorted([keys, ["one"]])
    for wrong in (["a b"], ["a", ""], ["a\n"], [" a"]):
        with pytest.raises(InvalidMessage, match="it would come back as others"):
            Message(topic, b"x", keys=wrong)
