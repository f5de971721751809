"""Queues by key, by function and away from trouble; the order of keys while connections break."""

import asyncio
import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from client.scripted_broker import TOPIC, ScriptedBroker
from cometmq import (
    AsyncProducer,
    ClientError,
    Message,
    MessageQueue,
    Producer,
    RouteNotFound,
    SendStatus,
    SettingsError,
    by_hash,
)
from cometmq.client.producer import queue_selector
from cometmq.client.session import routes
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.java_hash import java_hash

BATCH = RequestCode.SEND_BATCH_MESSAGE
SEND, ROUTE = RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ROUTEINFO_BY_TOPIC


class Pair:
    """Two scripted brokers, b0 and b1, with so many queues each; the first is the name server."""

    def __init__(self, queues=2):
        self.brokers = {"b0": ScriptedBroker(), "b1": ScriptedBroker()}
        self.queues = dict.fromkeys(self.brokers, queues)
        self.addr = self.brokers["b0"].addr
        self.brokers["b0"].answers[ROUTE] = self.route
        for broker in self.brokers.values():
            broker.answers[RequestCode.GET_MAX_OFFSET] = broker.succeed
            broker.answers[BATCH] = broker.stored

    def route(self, command):
        brokers = tuple(
            BrokerData(cluster="c", broker_name=name, broker_addrs={0: self.brokers[name].addr})
            for name, count in self.queues.items()
            if count
        )
        queues = tuple(
            QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=6)
            for name, count in self.queues.items()
            if count
        )
        route = TopicRouteData(broker_datas=brokers, queue_datas=queues)
        return response(command.opaque, 0, body=encode_route(route, strict=True))

    def sent(self, name):
        return len(self.brokers[name].requests(SEND))


@pytest.fixture
def pair():
    made = Pair()
    yield made
    for broker in made.brokers.values():
        broker.close()


def test_a_broker_that_no_route_names_any_more_gets_no_more_heartbeats(pair):
    async def scenario():
        async with AsyncProducer("g", namesrv=pair.addr) as producer:
            await producer.send(Message(TOPIC, b"x"))
            known = producer.pipeline.session.routes
            assert known.broker_addrs(masters_only=True) == {
                broker.addr for broker in pair.brokers.values()
            }
            pair.queues["b1"] = 0
            await known.refresh()
            assert known.broker_addrs(masters_only=True) == {pair.brokers["b0"].addr}

    asyncio.run(scenario())


def refuse(code):
    return lambda command: response(command.opaque, code, remark="no")


def test_a_broker_that_knows_no_such_topic_has_the_route_asked_for_again(
    scripted_broker, monkeypatch
):
    monkeypatch.setattr(routes, "_REFRESH_GAP_S", 0.0)
    first = iter([response(0, ResponseCode.TOPIC_NOT_EXIST, remark="not here")])

    def answer(command):
        refused = next(first, None)
        if refused is None:
            return scripted_broker.stored(command)
        refused.opaque = command.opaque
        return refused

    scripted_broker.answers[SEND] = answer
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"x"))
        asked = [command.ext["topic"] for command in scripted_broker.requests(ROUTE)]
        assert asked.count(TOPIC) == 2


@pytest.mark.parametrize("name", ["b0", "b1"])
def test_a_retry_goes_to_another_broker(pair, name):
    pair.brokers[name].answers[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
    pair.brokers[name].answers[BATCH] = refuse(ResponseCode.SYSTEM_BUSY)
    with Producer("g", namesrv=pair.addr) as producer:
        for _ in range(6):
            assert producer.send(Message(TOPIC, b"x")).queue.broker_name != name
        for _ in range(4):
            first, _ = producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])
            assert first.queue.broker_name != name


def test_a_message_that_is_not_safe_goes_to_another_broker_when_configured(pair):
    def unsafe(command):
        answer = pair.brokers["b0"].stored(command)
        answer.code = 12
        return answer

    pair.brokers["b0"].answers[SEND] = unsafe
    with Producer("g", namesrv=pair.addr) as producer:
        found = {producer.send(Message(TOPIC, b"x")).status for _ in range(8)}
        assert found == {SendStatus.SEND_OK, SendStatus.FLUSH_SLAVE_TIMEOUT}
    with Producer("g", namesrv=pair.addr, retry_not_ok=True) as producer:
        found = {producer.send(Message(TOPIC, b"x")).status for _ in range(8)}
        assert found == {SendStatus.SEND_OK}
        pair.brokers["b1"].answers[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        result = producer.send(Message(TOPIC, b"x"))
        assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT  # stored once is no error


def test_the_latency_fault_strategy_leaves_a_failing_broker_alone_and_is_off_by_default(pair):
    pair.brokers["b0"].answers[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
    with Producer("g", namesrv=pair.addr) as producer:
        for _ in range(12):
            producer.send(Message(TOPIC, b"x"))
    assert pair.sent("b0") >= 5
    before = pair.sent("b0")
    with Producer("g", namesrv=pair.addr, latency_fault="current") as producer:
        for _ in range(12):
            producer.send(Message(TOPIC, b"x"))
        assert pair.sent("b0") <= before + 1
        pair.brokers["b1"].answers[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
        pair.brokers["b0"].answers[SEND] = pair.brokers["b0"].stored
        for _ in range(4):  # both are isolated: there is a choice all the same
            assert producer.send(Message(TOPIC, b"x")).queue.broker_name == "b0"


def test_detection_notices_that_a_broker_is_back(pair, monkeypatch):
    monkeypatch.setattr("cometmq.client.producer.latency_tracker.PROBE_INTERVAL_S", 0.05)

    async def scenario():
        async with AsyncProducer(
            "g", namesrv=pair.addr, latency_fault="classic", detect_faults=True
        ) as producer:
            gone = pair.brokers["b1"]

            def hang_up(command):
                for connection in list(gone.connections):
                    connection.abort()

            gone.answers[SEND] = hang_up
            for _ in range(6):
                assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "b0"
            gone.answers[SEND] = gone.stored
            async with asyncio.timeout(20):  # far less than the 600 s of its table
                while (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "b0":
                    await asyncio.sleep(0.02)
        assert gone.requests(RequestCode.GET_MAX_OFFSET)

    asyncio.run(scenario())


def test_a_function_chooses_the_queue_and_a_wrong_choice_is_an_error(pair):
    def last(queues, message):
        return queues[-1] if message.body == b"x" else MessageQueue("t", "nowhere", 0)

    with Producer("g", namesrv=pair.addr) as producer:
        assert producer.send(Message(TOPIC, b"x"), queue=last).queue == (TOPIC, "b1", 1)
        producer.send_oneway(Message(TOPIC, b"x"), queue=last)
        with pytest.raises(ClientError, match="no queue of"):
            producer.send(Message(TOPIC, b"y"), queue=last)
        for key in ("order-123", -7, 2**40):
            code = java_hash(key) if isinstance(key, str) else key if key < 2**31 else 256
            result = producer.send(Message(TOPIC, b"x"), queue=by_hash(key))
            assert producer.queues(TOPIC).index(result.queue) == abs(code) % 4
        assert producer.send(Message(TOPIC, b"x"), queue=by_hash(-1, is_long=True)).queue == (
            TOPIC, "b0", 0,
        )  # fmt: skip
        with pytest.raises(ClientError, match="whole number"):
            by_hash(1.5)


def test_strict_order_fails_rather_than_let_a_key_change_its_queue(pair):
    with Producer("g", namesrv=pair.addr, strict_order=True) as producer:
        queues = producer.queues(TOPIC)
        keys = [f"k{n}" for n in range(12)]
        at = {key: producer.send(Message(TOPIC, b"x", sharding_key=key)).queue for key in keys}
        assert at == {key: queues[abs(java_hash(key)) % 4] for key in keys}
        pair.queues["b1"] = 0
        routes = producer._inner._session.routes
        routes.mark_stale(TOPIC)
        wait(lambda: len(producer.queues(TOPIC)) == 2, lambda: routes.mark_stale(TOPIC))
        for key in keys:
            if at[key].broker_name == "b0":
                assert producer.send(Message(TOPIC, b"x", sharding_key=key)).queue == at[key]
            else:
                with pytest.raises(RouteNotFound, match="strict_order"):
                    producer.send(Message(TOPIC, b"x", sharding_key=key), timeout_s=0.2)


def test_with_strict_order_each_kind_of_send_waits_for_the_broker_of_its_key(pair):
    with Producer("g", namesrv=pair.addr, strict_order=True) as producer:
        keys = [f"k{n}" for n in range(12)]
        at = {key: producer.send(Message(TOPIC, b"x", sharding_key=key)).queue for key in keys}
        away = next(key for key in keys if at[key].broker_name == "b1")
        message = Message(TOPIC, b"x", sharding_key=away)
        kinds = [
            lambda: producer.send(message, timeout_s=30.0),
            lambda: producer.send_batch([message] * 2, timeout_s=30.0)[0],
            lambda: producer.send_many([message] * 2, timeout_s=30.0)[0],
        ]
        routes = producer._inner._session.routes
        for send in kinds:
            pair.queues["b1"] = 0
            routes.forget(TOPIC)
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(send)
                asked = len(pair.brokers["b0"].requests(ROUTE))
                wait(
                    lambda asked=asked: len(pair.brokers["b0"].requests(ROUTE)) > asked + 2,
                    lambda: None,
                )
                assert not sent.done()
                pair.queues["b1"] = 2
                assert sent.result(30).queue == at[away]


def wait(condition, again):
    for _ in range(500):
        if condition():
            return
        again()
        threading.Event().wait(0.02)
    raise AssertionError("waited 10 s in vain")


def test_balanced_keys_go_to_the_least_loaded_queue_and_stay(pair, monkeypatch):
    with Producer("g", namesrv=pair.addr, keys="balanced") as producer:
        keys = [f"same-{n}" for n in range(12)]
        at = {key: producer.send(Message(TOPIC, b"x", sharding_key=key)).queue for key in keys}
        assert sorted(list(at.values()).count(q) for q in set(at.values())) == [3, 3, 3, 3]
        again = producer.send_many([Message(TOPIC, b"y", sharding_key=key) for key in keys[::-1]])
        assert [result.queue for result in again] == [at[key] for key in keys[::-1]]
    monkeypatch.setattr(queue_selector, "KEYS_MAX", 2)
    picks = queue_selector.QueueSelector(0, balanced=True)
    queues = [MessageQueue("t", "b", n) for n in range(3)]
    first = picks.for_key(queues, "a")
    for key in ("b", "c"):
        picks.for_key(queues, key)  # "a" is forgotten
    assert len(picks._balances["t"].queue_of) == 2
    assert picks.for_key([q for q in queues if q != first], "a") != first


def test_a_key_keeps_its_queue_in_a_batch_of_more_keys_than_are_remembered(pair, monkeypatch):
    monkeypatch.setattr(queue_selector, "KEYS_MAX", 2)
    with Producer("g", namesrv=pair.addr, keys="balanced") as producer:
        keys = "abcabca"
        found = producer.send_many([Message(TOPIC, b"x", sharding_key=key) for key in keys])
    at = {(key, result.queue) for key, result in zip(keys, found, strict=True)}
    assert len(at) == len(set(keys))


def test_bad_choices_of_settings_are_refused():
    for wrong in ({"latency_fault": "newest"}, {"keys": "random"}, {"strict_order": "yes"}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Producer("g", namesrv="127.0.0.1:1", **wrong)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_key_is_stored_in_order_while_connections_break(pair, seed):
    """Windows run across keys: 40 keys side by side, and every so often a connection resets."""
    dice = random.Random(seed)
    log, serial = [], itertools.count()

    def break_at_random(name):
        broker = pair.brokers[name]

        def store(command):
            if dice.random() < 0.04:  # broken before it was stored, or after
                if dice.random() < 0.5:
                    log.append((name, command.ext["e"], command.body))
                for connection in list(broker.connections):
                    connection.abort()
                return None
            log.append((name, command.ext["e"], command.body))
            ext = {
                "queueId": command.ext["e"],
                "queueOffset": str(next(serial)),
                "msgId": "AA" * 16,
            }
            return response(command.opaque, 0, ext=ext)

        broker.answers[SEND] = store

    for name in pair.brokers:
        break_at_random(name)

    async def scenario():
        async with AsyncProducer("g", namesrv=pair.addr, retries=50) as producer:
            futures = [
                producer.send_async(Message(TOPIC, b"%d %d" % (key, n), sharding_key=f"k{key}"), 60)
                for n in range(8)
                for key in range(40)
            ]
            await asyncio.gather(*futures)

    asyncio.run(scenario())
    places, order = {}, {}
    for name, queue, body in log:
        key, n = map(int, body.split())
        places.setdefault(key, set()).add((name, queue))
        order.setdefault(key, []).append(n)
    assert len(order) == 40
    for key, numbers in order.items():
        assert numbers == sorted(numbers), f"key {key} was stored as {numbers}"
        assert set(numbers) == set(range(8))
        assert len(places[key]) == 1
    running = [int(body.split()[0]) for _, _, body in log]
    # One after the other it would be 5 keys of 8 messages; what broke and came again counts too.
    assert len(set(running[:40])) > 10, "keys ran one after the other, not side by side"


def test_round_robin_avoids_the_broker_that_failed():
    queues = [MessageQueue("T", broker, n) for broker in "ab" for n in range(2)]
    selector = queue_selector.QueueSelector(first=5)
    assert [selector.round_robin("T", queues) for _ in range(4)] == [*queues[1:], queues[0]]
    assert {selector.round_robin("T", queues, "a").broker_name for _ in range(8)} == {"b"}
    assert selector.round_robin("T", queues[:2], "a") in queues[:2]  # nothing else is there
