"""The same producer on Apache RocketMQ's broker and on ours: transactions, requests, signatures."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import pytest

from cometmq import (
    Admin,
    BrokerError,
    ConsumeFrom,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionState,
)
from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class Cluster(Protocol):
    """What a test needs to know of either."""

    namesrv: str


@pytest.fixture(scope="module", params=["ours", "apache"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "ours":
        with LocalCluster(
            root, transaction_timeout_ms=500, transaction_check_interval_ms=500
        ) as running:
            yield running
    else:
        jars: Path = request.getfixturevalue("apache_jars")
        apache = ApacheCluster(
            jars,
            root,
            transactionTimeOut=6_000,  # it notes an end up to 3 s late and asks again meanwhile
            transactionCheckInterval=2_000,
        )
        yield apache
        apache.stop()


def topic_of(cluster: Cluster, name: str) -> str:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(name, queues=2)
    return name


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    complete = threading.Event()

    def handler(messages: Sequence[MessageExt]) -> None:
        got.extend(message.body for message in messages)
        if len(got) >= count:
            complete.set()

    consumer = PushConsumer(
        f"readers-{topic}", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe(topic, "*", handler)
    with consumer:
        assert complete.wait(90), f"only {len(got)} of {count} messages came"
        threading.Event().wait(1)
    return sorted(got)


def test_transactions_are_committed_rolled_back_and_asked_about(cluster: Cluster) -> None:
    topic = topic_of(cluster, "Transactions")

    def check(message: MessageExt) -> bool:
        return message.body == b"asked yes"

    with Producer("payers", namesrv=cluster.namesrv, check=check) as producer:
        with producer.transaction() as tx:
            tx.send(Message(topic, b"block yes", tags="A", keys="k"), timeout_s=20)
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            assert tx.send(Message(topic, b"block no"), timeout_s=20).queue_offset / 0
        for body, verdict in ((b"yes", True), (b"no", False), (b"asked yes", None)):
            message = Message(topic, body)
            done = producer.send_in_transaction(message, lambda _, v=verdict: v, timeout_s=20)
            assert (
                done.state
                is {
                    True: TransactionState.COMMIT,
                    False: TransactionState.ROLLBACK,
                    None: TransactionState.UNKNOWN,
                }[verdict]
            )
        producer.send_in_transaction(Message(topic, b"asked no"), lambda _: None, timeout_s=20)
        assert read(cluster, topic, 3) == [b"asked yes", b"block yes", b"yes"]


def test_a_request_gets_its_reply(cluster: Cluster) -> None:
    topic = topic_of(cluster, "Requests")
    with (
        Producer("askers", namesrv=cluster.namesrv) as asker,
        Producer("repliers", namesrv=cluster.namesrv) as replier,
    ):

        def answer(messages: Sequence[MessageExt]) -> None:
            for message in messages:
                replier.reply(message, b"re: " + message.body)

        consumer = PushConsumer(
            "answering", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST
        )
        consumer.subscribe(topic, "*", answer)
        with consumer:
            for n in range(5):
                reply = asker.request(Message(topic, b"%d" % n), timeout_s=60)
                assert reply.body == b"re: %d" % n


def test_keys_order_delays_and_batches_arrive(cluster: Cluster) -> None:
    topic = topic_of(cluster, "Kinds")
    with Producer("kinds", namesrv=cluster.namesrv, latency_fault="current") as producer:
        producer.send(Message(topic, b"faulty strategy"))
    with Producer("kinds", namesrv=cluster.namesrv, compression="zstd") as producer:
        producer.send(Message(topic, b"z" * 10_000))
        producer.send(Message(topic, b"plain", keys="k1 k2", tags="T"))
        assert len(producer.send_batch([Message(topic, b"b%d" % n) for n in range(3)])) == 3
        producer.send(Message(topic, b"later", delay_level=1))
        producer.send_oneway(Message(topic, b"oneway"))
    assert read(cluster, topic, 8) == sorted(
        [b"faulty strategy", b"z" * 10_000, b"plain", b"b0", b"b1", b"b2", b"later", b"oneway"]
    )


def test_an_apache_broker_takes_our_signature_and_no_other(
    apache_jars: Path, tmp_path: Path
) -> None:
    provider = "org.apache.rocketmq.auth.authentication.provider"
    apache = ApacheCluster(
        apache_jars,
        tmp_path,
        authenticationEnabled=True,
        authenticationProvider=f"{provider}.DefaultAuthenticationProvider",
        authenticationMetadataProvider=f"{provider}.LocalAuthenticationMetadataProvider",
        initAuthenticationUser='{"username":"ak","password":"sk-of-eight"}',
        innerClientAuthenticationCredentials='{"accessKey":"ak","secretKey":"sk-of-eight"}',
    )
    try:
        keys = {"access_key": "ak", "secret_key": "sk-of-eight"}
        with Producer("signed", namesrv=apache.namesrv, **keys) as producer:
            for n in range(3):
                producer.send(Message("TBW102", b"%d" % n, keys="ü", tags="T"), timeout_s=20)
        wrong = {"access_key": "ak", "secret_key": "another"}
        for given in (wrong, {}):
            with (
                Producer("signed", namesrv=apache.namesrv, **given) as producer,
                pytest.raises(BrokerError),
            ):
                producer.send(Message("TBW102", b"x"), timeout_s=20)
    finally:
        apache.stop()
