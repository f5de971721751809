"""Our client on Apache RocketMQ's broker, and our broker at Apache RocketMQ's name server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import (
    Admin,
    AsyncAdmin,
    Message,
    MessageExt,
    Producer,
    RetryLater,
    TopicExists,
    WouldHideMessages,
)
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import ServerProcess
from cometmq.wire.bodies.route import decode_cluster_info
from cometmq.wire.codes import RequestCode
from interop.apache import ApacheCluster
from interop.reading import read
from interop.side_by_side.recording_proxy import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cometmq.model.topic import TopicConfig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
COUNT = 200


def test_our_client_sends_and_consumes_on_an_apache_broker(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("OursOnApache", queues=4)
    with Producer("ours", namesrv=apache.namesrv) as producer:
        for n in range(COUNT):
            producer.send(Message("OursOnApache", f"m{n}".encode(), tags="t", keys=f"k{n}"))
    got = read(apache.namesrv, "OursOnApache", "ours-reader", COUNT)
    assert sorted(m.body for m in got) == sorted(f"m{n}".encode() for n in range(COUNT))


def test_our_orderly_consumer_keeps_the_order_of_each_key(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("OursInOrder", queues=4)
    with Producer("ours-ordered", namesrv=apache.namesrv) as producer:
        messages = [
            Message("OursInOrder", str(n).encode(), sharding_key=f"key-{n % 7}")
            for n in range(COUNT)
        ]
        producer.send_many(messages)
    got = read(apache.namesrv, "OursInOrder", "ours-orderly", COUNT, orderly=True)
    by_key: dict[int, list[int]] = defaultdict(list)
    for message in got:
        by_key[int(message.body) % 7].append(int(message.body))
    assert all(seen == sorted(seen) for seen in by_key.values())
    assert sum(map(len, by_key.values())) == COUNT


def test_a_refused_message_comes_back_by_way_of_the_retry_topic(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("OursRefused", queues=1)
    with Producer("ours-refused", namesrv=apache.namesrv) as producer:
        producer.send(Message("OursRefused", b"twice"))

    def refuse_once(messages: Sequence[MessageExt]) -> None:
        if messages[0].reconsume_times == 0:
            raise RetryLater(delay_level=1)

    (again,) = read(apache.namesrv, "OursRefused", "ours-retry", 1, refuse_once)
    assert (again.body, again.reconsume_times) == (b"twice", 1)


def test_a_message_refused_too_often_is_dead_on_an_apache_broker(apache: ApacheCluster) -> None:
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic("OursDead", queues=1)
    with Producer("ours-dead", namesrv=apache.namesrv) as producer:
        producer.send_many(
            [Message("OursDead", body, sharding_key="k") for body in (b"bad", b"good")]
        )

    def refuse_the_bad(messages: Sequence[MessageExt]) -> None:
        if messages[0].body == b"bad":
            raise ValueError("this one is bad")

    (good,) = read(
        apache.namesrv,
        "OursDead",
        "ours-dying",
        1,
        refuse_the_bad,
        orderly=True,
        max_attempts=2,
        suspend_ms=50,
    )
    assert good.body == b"good"
    (dead,) = read(apache.namesrv, "%DLQ%ours-dying", "ours-undertaker", 1)
    assert dead.body == b"bad"
    assert "this one is bad" in dead.properties["DLQ_REASON"]


def test_our_broker_registers_at_apaches_name_server(
    apache_jars: Path, java_program: Callable[..., list[str]], tmp_path: Path
) -> None:
    names = ApacheCluster(apache_jars, tmp_path / "names", broker=False)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"namesrvAddr={names.namesrv}\nbrokerName=ours\nlistenPort=0\n")
    broker = ServerProcess(["broker", "-c", str(conf), "--store", str(tmp_path / "store")])
    try:
        java_program("send", names.namesrv, "AtApaches", "JavaProducer", 5)
        got = java_program("consume", names.namesrv, "AtApaches", "JavaReader", 5)
        assert len([line for line in got if line.startswith("GOT")]) == 5
    finally:
        broker.stop()
        names.stop()


def test_our_broker_asks_apaches_name_server_whether_there_is_news_before_it_registers_again(
    apache_jars: Path, tmp_path: Path
) -> None:
    names = ApacheCluster(apache_jars, tmp_path / "names", broker=False)
    with contextlib.ExitStack() as started:
        started.callback(names.stop)
        tap = started.enter_context(Tap(names.namesrv, "127.0.0.1:1"))  # the broker is never asked
        lines = [f"namesrvAddr={tap.namesrv}", "brokerName=ours", "listenPort=0"]
        lines += ["forceRegister=false", "registerNameServerPeriod=10000"]
        conf = tmp_path / "broker.conf"
        conf.write_text("\n".join(lines))
        broker = ServerProcess(["broker", "-c", str(conf), "--store", str(tmp_path / "store")])
        started.callback(broker.stop)
        until(lambda: said(tap)[2:] == [UNCHANGED] * 2, 60)
        assert said(tap)[:2] == ["asked: true", "registered: 0"]
        with Admin(namesrv=names.namesrv) as admin:
            admin.create_topic("News", queues=3)
            assert len(admin.queues("News")) == 3
        until(lambda: said(tap)[-2:] == ["registered: 0", UNCHANGED], 60)
        assert said(tap)[2:] == [UNCHANGED] * (len(said(tap)) - 4) + ["registered: 0", UNCHANGED]


UNCHANGED = "asked: false"


def said(tap: Tap) -> list[str]:
    """What a broker asked (322) and registered (103) at its name server, each with the answer."""
    found = []
    for request, answer in [(each.request, each.answer) for each in list(tap.heard)]:
        if answer and request.code == RequestCode.QUERY_DATA_VERSION:
            found.append(f"asked: {answer.ext['changed']}")
        elif answer and request.code == RequestCode.REGISTER_BROKER:
            found.append(f"registered: {answer.code}")
    return found


def test_apaches_broker_registers_at_our_name_server(
    apache_jars: Path, java_program: Callable[..., list[str]], tmp_path: Path
) -> None:
    names = ServerProcess(["namesrv", "-p", "0", "--set", "kvConfigPath="])
    where = str(names.facts["namesrv"])
    broker: ApacheCluster | None = None
    try:
        broker = ApacheCluster(apache_jars, tmp_path / "broker", namesrv=where)
        java_program("send", where, "AtOurs", "JavaProducer", 5)
        got = java_program("consume", where, "AtOurs", "JavaReader", 5)
        assert len([line for line in got if line.startswith("GOT")]) == 5
        with BlockingChannel(where, 5) as channel:
            answer = channel.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            entry = decode_cluster_info(answer.body).broker_addr_table["apache-a"]
            assert entry.broker_addrs == {0: broker.broker}
            broker.stop()
            broker = None
            answer = channel.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert decode_cluster_info(answer.body).broker_addr_table == {}
    finally:
        if broker is not None:
            broker.stop()
        names.stop()


def test_no_name_server_stays_behind_a_broker_that_does_not_start(
    apache_jars: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AssertionError) as raised:
        ApacheCluster(apache_jars, tmp_path, listenPort=taken.getsockname()[1])
    assert "BrokerStartup did not start" in str(raised.value)
    port = (tmp_path / "namesrv" / "settings.conf").read_text().strip().partition("=")[2]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), 5)


def test_a_topic_on_apaches_broker_is_created_once_and_altered_in_what_is_named(
    apache: ApacheCluster,
) -> None:
    topic = "OursAltered"
    with Admin(namesrv=apache.namesrv) as admin:
        admin.create_topic(topic, 4, perm="w", order=True)
        with pytest.raises(TopicExists, match="4 read and 4 write queues"):
            admin.create_topic(topic, 2)
        admin.alter_topic(topic, 6, perm="rw")
        assert len(admin.queues(topic)) == 6
        with Producer("OursAltering", namesrv=apache.namesrv) as producer:
            for queue in admin.queues(topic):
                producer.send(Message(topic, b"x"), queue=queue)
        until(lambda: sum(at.max_offset for at in admin.topic_stats(topic).values()) == 6)
        with pytest.raises(WouldHideMessages) as refused:
            admin.alter_topic(topic, 4)
        assert list(refused.value.messages.values()) == [1, 1]
        admin.alter_topic(topic, 4, may_hide_messages=True)
        assert len(admin.queues(topic)) == 4
        (config,) = asyncio.run(configs(apache.namesrv, topic)).values()
        assert (config.order, config.perm) == (True, 6)


async def configs(namesrv: str, topic: str) -> dict[str, TopicConfig]:
    async with AsyncAdmin(namesrv=namesrv) as admin:
        changes = admin._changes()
        return await changes.configs(topic, await changes.routed_brokers(topic))
