"""What a member says of its share of the group, and of queues that wait; in virtual time."""

from __future__ import annotations

import asyncio
import logging

from cometmq import AsyncAdmin, AsyncProducer, AsyncPushConsumer, FlowLimits, Message
from cometmq.rules.allocate import average
from cometmq.testing import Inbox, MemoryCluster, in_virtual_time, until_assigned


async def make_topic(cluster: MemoryCluster, topic: str, **settings: object) -> None:
    async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
        await admin.create_topic(topic, **settings)


def lines(caplog, text: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


def member(cluster: MemoryCluster, name: str, topics="T", **settings: object) -> AsyncPushConsumer:
    made = AsyncPushConsumer(
        "G", namesrv=cluster.namesrv, instance_name=name, consume_from="first",
        **{"rebalance_s": 2.0, **settings},
    )  # fmt: skip
    for topic in topics:
        made.subscribe(topic, "*", Inbox())
    return made


@in_virtual_time()
async def test_a_member_without_a_queue_says_so_once(caplog):
    caplog.set_level(logging.INFO)
    async with MemoryCluster() as cluster:
        await make_topic(cluster, "T", queues=2)
        async with member(cluster, "a"), member(cluster, "b"), member(cluster, "c"):
            await asyncio.sleep(30)
    found = lines(caplog, "this member has no queue of T: 2 queues for 3 members of G")
    assert len(found) == 1


@in_virtual_time()
async def test_threads_that_an_order_leaves_idle_are_named(caplog):
    caplog.set_level(logging.INFO)
    async with MemoryCluster() as cluster:
        await make_topic(cluster, "T", queues=4)
        async with member(cluster, "a", order="queue", consume_threads=9):
            await until_assigned(cluster, "G", "T")
            await asyncio.sleep(10)
    assert len(lines(caplog, "consume_threads is 9 and 4 of them can work")) == 1


@in_virtual_time()
async def test_an_allocate_function_that_raises_is_named_with_its_topic_and_others_go_on(caplog):
    def allocate(client_id, queues, clients):
        if queues[0].topic == "T":
            raise KeyError("zone")
        return average(client_id, queues, clients)

    async with MemoryCluster() as cluster:
        await make_topic(cluster, "T", queues=1)
        await make_topic(cluster, "U", queues=1)
        async with member(cluster, "a", "TU", allocate=allocate) as running:
            await until_assigned(cluster, "G", "U")
            await asyncio.sleep(10)
            assert {queue.topic for queue in running.assigned} == {"U", "%RETRY%G"}
    assert len(lines(caplog, "the allocate function raised KeyError('zone') for T")) == 1


@in_virtual_time()
async def test_a_topic_that_may_not_be_read_is_said_to_be_that(caplog):
    async with MemoryCluster() as cluster:
        await make_topic(cluster, "T", queues=1, perm="w")
        async with member(cluster, "a"):
            await asyncio.sleep(5)
    assert len(lines(caplog, "the topic T may not be read")) == 1
    assert not lines(caplog, "knows the topic T yet")


@in_virtual_time()
async def test_flow_control_is_logged_when_it_begins_and_ends(caplog):
    caplog.set_level(logging.INFO)

    async def handle(_messages: object) -> None:
        await asyncio.sleep(3)

    async with MemoryCluster() as cluster:
        await make_topic(cluster, "T", queues=1)
        consumer = AsyncPushConsumer(
            "G", namesrv=cluster.namesrv, consume_from="first", consume_threads=1,
            flow=FlowLimits(count=4), pull_batch_size=8,
        )  # fmt: skip
        consumer.subscribe("T", "*", handle)
        async with AsyncProducer("P", namesrv=cluster.namesrv) as producer:
            for number in range(12):
                await producer.send(Message("T", b"%d" % number))
            async with consumer:
                await asyncio.sleep(60)
    begins = lines(caplog, "flow control: T@broker-a/0 is not pulled, ")
    assert begins
    assert all("messages are cached; flow.count is 4" in each for each in begins)
    assert len(lines(caplog, "T@broker-a/0 is pulled again after ")) == len(begins)
