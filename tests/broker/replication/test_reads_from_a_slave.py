"""Readers go to a slave and come back; nobody's messages are skipped by it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker.commands import held_pull
from broker.harness import SMALL_STORE, run
from broker.replication.broker_pair import SLAVE, commit, end_of, pair, until
from cometmq import AsyncPushConsumer, ConsumeFrom
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from broker.commands import Harness

FOUND, MOVED = ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED
LATER, NOTHING = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND
NO_MEMORY = replace(SMALL_STORE, memory_percent=0)


def read_at(harness: Harness) -> int:
    stats = harness.broker.state.stats
    stats.refresh()
    return stats.user_gets.count


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_reader_far_behind_is_sent_to_a_slave_where_that_is_enabled(is_enabled: bool) -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start(slave_read_enable=is_enabled, store=NO_MEMORY)
            client = await master.client()
            for number in range(3):
                await client.send("T", b"%d" % number)
            far = await client.pull("T", max_msg_nums=1)
            assert far.code == FOUND
            assert far.ext["suggestWhichBrokerId"] == ("1" if is_enabled else "0")
            await client.send("Other", bytes(5_000))
            at_end = await client.pull("T", queue_offset=3)  # it lacks nothing
            assert (at_end.code, at_end.ext["suggestWhichBrokerId"]) == (NOTHING, "0")

    run(scenario())


def test_a_consumer_far_behind_reads_at_the_slave_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cometmq.broker.request_handlers.ram_bytes", lambda: 200_000)

    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both(
                broker_role="SYNC_MASTER", in_sync_replicas=2, slave_read_enable=True
            )
            client = await master.client()
            for number in range(200):  # 80 kB are 40 % of the memory, and these 200 kB
                await client.send("T", b"%03d" % number + bytes(900), queue_id=0)
            got: list[bytes] = []
            consumer = AsyncPushConsumer(
                "CG", namesrv=brokers.namesrv, consume_from=ConsumeFrom.FIRST, pull_batch_size=8
            )
            consumer.subscribe("T", "*", lambda messages: got.extend(m.body[:3] for m in messages))
            async with consumer:
                await until(lambda: len(got) == 200)
                at_master, at_slave = read_at(master), read_at(slave)
                assert at_slave > 80  # some 120 of them were old
                assert at_master > 60
                for number in range(200, 260):
                    await client.send("T", b"%03d" % number, queue_id=0)
                await until(lambda: len(got) == 260)
                assert (read_at(master), read_at(slave)) == (at_master + 60, at_slave)
                offsets = master.broker.state.offsets
                await until(lambda: offsets.committed("CG", "T", 0) == 260)
            assert got == [b"%03d" % number for number in range(260)]

    run(scenario())


def test_a_slave_sends_readers_back_while_its_master_is_there() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both()
            client, reader = await master.client(), await slave.client()
            await client.send("T", b"one")
            await until(lambda: end_of(slave) == end_of(master))
            await until(lambda: slave.broker.state.topics.get("T") is not None)
            found = await reader.pull("T")
            assert (found.code, found.ext["suggestWhichBrokerId"]) == (FOUND, "0")
            for offset in (1, 7):  # at the end, and where only the master can be
                back = await reader.pull("T", queue_offset=offset)
                assert (back.code, back.ext["suggestWhichBrokerId"]) == (LATER, "0")
                assert back.ext["nextBeginOffset"] == str(offset)
            await master.broker.stop()
            await until(lambda: not slave.broker._replication.is_following())
            found = await reader.pull("T")
            assert (found.code, found.ext["suggestWhichBrokerId"]) == (FOUND, "1")
            for offset in (1, 7):
                held = held_pull(reader, "T", queue_offset=offset, suspend_timeout_ms=5_000)
                answer = await held
                assert (answer.code, answer.ext["suggestWhichBrokerId"]) == (NOTHING, "1")
                assert answer.ext["nextBeginOffset"] == str(offset)

    run(scenario())


def test_what_the_slave_does_not_have_is_not_skipped() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            store = replace(SMALL_STORE, commit_log_file_bytes=8_192)
            master = await brokers.start(store=store)
            client = await master.client()
            for number in range(30):
                await client.send("T", b"%d" % number + b"x" * 700)
            slave = await brokers.start(store=store, **SLAVE)
            await until(lambda: end_of(slave) == end_of(master))
            await until(lambda: slave.broker.state.topics.get("T") is not None)
            assert slave.broker.store.min_phy_offset > 0
            reader = await slave.client()
            back = await reader.pull("T", queue_offset=0)
            assert (back.code, back.ext["nextBeginOffset"]) == (LATER, "0")
            await master.broker.stop()
            await until(lambda: not slave.broker._replication.is_following())
            waits = await reader.pull("T", queue_offset=0)
            assert (waits.code, waits.ext["nextBeginOffset"]) == (NOTHING, "0")

    run(scenario())


def test_a_consumer_goes_on_at_the_slave_when_the_master_is_gone() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master, slave = await brokers.both(broker_role="SYNC_MASTER", in_sync_replicas=2)
            client = await master.client()
            for number in range(8):
                await client.send("T", b"%d" % number, queue_id=number % 4)
            got: list[bytes] = []
            group = "CG"
            await commit(client, 1)  # one of the two of queue 0 was done at the master
            await until(lambda: slave.broker.state.offsets.committed(group, "T", 0) == 1)
            await master.broker.stop()
            consumer = AsyncPushConsumer(
                group, namesrv=brokers.namesrv, consume_from=ConsumeFrom.FIRST
            )
            consumer.subscribe("T", "*", lambda messages: got.extend(m.body for m in messages))
            async with consumer:
                await until(lambda: len(got) >= 1)
                await until(lambda: slave.broker.state.offsets.committed(group, "T", 0) == 2)
            assert got.count(b"4") == 1
            assert b"0" not in got

    run(scenario())
