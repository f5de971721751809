"""Faults by name, each on real servers and clients."""

from __future__ import annotations

import asyncio
import time

import pytest

from cometmq import Admin, AsyncProducer, Message, Producer, PushConsumer
from cometmq.errors import RemotingError
from cometmq.testing import (
    Inbox,
    InProcessCluster,
    LocalCluster,
    RelayedCluster,
    SlowFiles,
    broker_killed,
    broker_suspended,
    expire_locks,
    network_partition,
    wait_until_assigned,
    wait_until_idle,
    wait_until_stored,
)


def test_a_broker_that_was_killed_comes_back_with_what_it_had():
    with LocalCluster() as cluster, Producer("P", namesrv=cluster.namesrv, retries=0) as producer:
        producer.send(Message("T", b"before"))
        with broker_killed(cluster), pytest.raises(RemotingError):
            producer.send(Message("T", b"x"), timeout_s=0.5)
        wait_until_stored(cluster, "T", 1)


def test_a_suspended_broker_answers_nobody_and_then_goes_on():
    with LocalCluster() as cluster, Producer("P", namesrv=cluster.namesrv, retries=0) as producer:
        producer.send(Message("T", b"before"))
        with broker_suspended(cluster), pytest.raises(RemotingError):
            producer.send(Message("T", b"x"), timeout_s=0.5)
        producer.send(Message("T", b"after"), timeout_s=30.0)


def test_nothing_passes_a_partition_and_what_waited_arrives_after_it():
    with RelayedCluster() as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("T", queues=1)
        inbox = Inbox()
        consumer = PushConsumer("G", namesrv=cluster.namesrv, consume_from="first")
        consumer.subscribe("T", "*", inbox)
        with Producer("P", namesrv=cluster.namesrv, retries=0) as producer, consumer:
            producer.send(Message("T", b"before"))
            inbox.wait(1)
            with network_partition(cluster), pytest.raises(RemotingError):
                producer.send(Message("T", b"held"), timeout_s=0.5)
            assert b"held" in {each.body for each in inbox.wait(2)}
            cluster.cut()
            producer.send(Message("T", b"after"), timeout_s=30.0)
            assert b"after" in {each.body for each in inbox.wait(3)}


def test_a_lock_that_expired_is_free_for_another_member():
    with LocalCluster() as cluster:
        settings = {"namesrv": cluster.namesrv, "orderly": True, "consume_from": "first"}
        inbox = Inbox()
        first = PushConsumer("G", **settings)
        first.subscribe("T", "*", inbox)
        with Producer("P", namesrv=cluster.namesrv) as producer, first:
            producer.send(Message("T", b"x", sharding_key="k"))
            inbox.wait(1)
            wait_until_assigned(cluster, "G", "T", members=1)
            assert expire_locks(cluster, "G", "T") == len(producer.queues("T"))
            wait_until_idle(cluster, "G", "T")


def test_a_slow_disk_delays_what_waits_for_it(tmp_path):
    async def scenario() -> None:
        files = SlowFiles(0.0)
        settings = {"flush_disk_type": "SYNC_FLUSH"}
        async with (
            InProcessCluster(tmp_path, files=files, **settings) as cluster,
            AsyncProducer("P", namesrv=cluster.namesrv) as producer,
        ):
            await producer.send(Message("T", b"x"), timeout_s=30.0)
            files.sync_s = 0.5
            begun = time.monotonic()
            await producer.send(Message("T", b"x"), timeout_s=30.0)
            assert time.monotonic() - begun >= 0.5

    asyncio.run(scenario())
