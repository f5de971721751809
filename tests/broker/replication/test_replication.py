"""A slave's log follows its master's byte for byte, and a master's answers wait for it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.replication.replica_pair import LOG_FILE, PORT, ReplicaPair, run
from cometmq.broker.replication import replication_server
from cometmq.broker.replication.slave_feed import GATHERED_BYTES_MAX
from cometmq.store.message_store import PutStatus
from cometmq.wire.replication import Transfer, TransferDecoder, encode_report

OK, LATE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_answered_ok_is_at_the_slave(flush: str) -> None:
    async def scenario() -> None:
        pair = ReplicaPair(flush=flush)
        await pair.start()
        for _ in range(50):
            assert await pair.put() is OK
            assert pair.slave.log == pair.master.log
        assert pair.master.store.max_phy_offset > 2 * LOG_FILE
        await pair.stop()

    run(scenario())


def test_without_a_slave_a_send_is_kept_and_answered_late() -> None:
    async def scenario() -> None:
        pair = ReplicaPair()
        await pair.start_master()
        loop = asyncio.get_running_loop()
        begun_s, answers = loop.time(), [pair.put() for _ in range(3)]
        assert await asyncio.gather(*answers) == [LATE] * 3
        assert 3.0 <= loop.time() - begun_s < 3.1
        await pair.start_slave()
        assert await pair.put() is OK
        assert pair.slave.log == pair.master.log
        await pair.stop()

    run(scenario())


def test_an_empty_slave_starts_at_the_last_file_of_the_master() -> None:
    async def scenario() -> None:
        pair = ReplicaPair()
        await pair.start_master()
        while pair.master.store.max_phy_offset < 3 * LOG_FILE:
            pair.put()
            await asyncio.sleep(0)
        await pair.start_slave()
        await pair.caught_up()
        first = pair.slave.store.min_phy_offset
        assert first == pair.master.store.max_phy_offset // LOG_FILE * LOG_FILE > 0
        assert pair.slave.log == pair.master.log[first:]
        await pair.stop()

    run(scenario())


def test_both_come_back_from_a_kill_and_the_copy_goes_on() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(3)
        await pair.start()
        for round_ in range(6):
            for _ in range(5):
                assert await pair.put() is OK
            await (pair.stop_slave() if round_ % 2 else pair.stop())
            await pair.slave.crash(power_cut=False)
            if not round_ % 2:
                await pair.master.crash(power_cut=False)
                await pair.start_master()
            await pair.start_slave()
        await pair.caught_up()
        assert pair.slave.log == pair.master.log
        await pair.stop()

    run(scenario())


def test_a_torn_end_of_the_slave_is_mended_from_the_master() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(5)
        await pair.start()
        for _ in range(20):
            assert await pair.put() is OK
        await pair.stop_slave()
        before = len(pair.slave.log)
        await pair.slave.crash(power_cut=True)
        assert len(pair.slave.log) < before
        await pair.start_slave()
        await pair.caught_up()
        assert pair.slave.log == pair.master.log[pair.slave.store.min_phy_offset :]
        await pair.stop()

    run(scenario())


@pytest.mark.parametrize("lost", ["the master's end", "another last message"])
def test_a_slave_with_another_history_refuses_and_says_where(
    lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        pair = ReplicaPair(7)
        await pair.start()
        assert await pair.put(b"one") is OK
        common = pair.master.store.max_phy_offset
        await pair.stop_slave()
        # what only the slave has: as if the master had lost its last message
        other = ReplicaPair(7)
        other.slave = pair.slave
        pair.slave.store.is_slave = False
        other.master = pair.slave
        other._number = 9
        theirs = other.put(b"theirs")
        assert await theirs is OK
        if lost == "another last message":
            assert await pair.put(b"own and longer") is LATE
        log_before = pair.slave.log
        await pair.start_slave()
        await pair.until(lambda: pair.client.is_different)
        assert pair.slave.log == log_before
        where = "at byte" if lost == "another last message" else "messages that its master has not"
        if lost == "another last message":
            assert where in pair.client.problem
            differs = int(pair.client.problem.rsplit(" ", 1)[1])
            assert common <= differs < len(log_before)
        assert sum("rebuild" in record.message for record in caplog.records) >= 1
        await pair.stop()

    with caplog.at_level(logging.WARNING):
        run(scenario())


@pytest.mark.parametrize(
    "said", [b"\xff" * 8, encode_report(1 << 40), encode_report(0) + encode_report(999)]
)
def test_what_no_slave_says_closes_the_connection_with_one_line(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        pair = ReplicaPair()
        await pair.start_master()
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.create_connection(lambda: protocol, "m", PORT)
        transport.write(said)
        assert await reader.read() == b""
        assert pair.server.slaves == []
        await pair.stop_master()

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [r for r in caplog.messages if "closing the slave" in r] == caplog.messages[:1]


def test_slaves_too_many_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_server, "SLAVES_MAX", 1)

    async def scenario() -> None:
        pair = ReplicaPair()
        await pair.start()
        assert await pair.put() is OK
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await loop.create_connection(lambda: protocol, "m", PORT)
        assert await reader.read() == b""
        assert len(pair.server.slaves) == 1
        assert await pair.put() is OK
        await pair.stop()

    run(scenario())


def test_a_silent_slave_is_closed_and_an_idle_one_gets_heartbeats() -> None:
    async def scenario() -> None:
        pair = ReplicaPair()
        await pair.start()
        assert await pair.put() is OK
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.create_connection(lambda: protocol, "m", PORT)
        transport.write(encode_report(0))
        begun_s, said = loop.time(), await reader.read()  # until the master closes it
        assert 20 <= loop.time() - begun_s <= 22
        found = TransferDecoder().feed(said)
        assert found[0].data == pair.master.log
        assert [each.data for each in found[1:]] == [b""] * (len(found) - 1)
        assert len(found) in (4, 5)  # one each five seconds
        assert len(pair.server.slaves) == 1  # the idle one is still there
        await pair.stop()

    run(scenario())


def test_a_slave_far_behind_is_fed_in_turns_and_no_faster_than_allowed() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(
            file_bytes=1 << 20,
            ha_flow_control_enable=True,
            max_ha_transfer_bytes_per_second=100_000,
        )
        await pair.start_master()
        while pair.master.store.max_phy_offset < 500_000:
            pair.put(b"x" * 4_000)
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await pair.start_slave()
        await pair.caught_up()
        assert 4 <= loop.time() - begun_s <= 7
        assert pair.slave.log == pair.master.log
        await pair.stop()

    run(scenario())


def test_transfers_that_nobody_waits_for_are_gathered_for_some_milliseconds() -> None:
    async def scenario(*, is_waiting: bool) -> int:
        """Put a message each millisecond; how many transfers brought them."""
        pair = ReplicaPair(is_waiting=is_waiting)
        await pair.start()
        await pair.until(lambda: pair.client.is_following)
        transfers = count_transfers(pair)
        for _ in range(100):
            pair.put(b"x" * 50)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert pair.slave.log == pair.master.log
        await pair.stop()
        return len(transfers)

    async def both() -> None:
        assert 100 / 12 < await scenario(is_waiting=False) < 100 / 8
        assert await scenario(is_waiting=True) >= 100

    run(both())


def test_after_a_rest_a_transfer_leaves_at_once() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(is_waiting=False)
        await pair.start()
        await pair.until(lambda: pair.client.is_following)
        for _ in range(3):
            await asyncio.sleep(1)
            assert await pair.put() is OK
            for _ in range(20):  # turns of the loop, in which no time goes by
                await asyncio.sleep(0)
            assert pair.slave.log == pair.master.log
        await pair.stop()

    run(scenario())


def test_a_slave_far_behind_that_nobody_waits_for_is_not_held_up() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(is_waiting=False, file_bytes=1 << 20)
        await pair.start_master()
        for _ in range(200):
            assert await pair.put(b"x" * 2_500) is OK
        await pair.start_slave()
        await pair.until(lambda: bool(pair.slave.log))
        assert len(pair.master.log) - len(pair.slave.log) < GATHERED_BYTES_MAX
        await pair.caught_up()
        await pair.stop()

    run(scenario())


def test_a_master_that_stops_still_sends_what_it_has_gathered() -> None:
    async def scenario() -> None:
        pair = ReplicaPair(is_waiting=False)
        await pair.start()
        await pair.until(lambda: pair.client.is_following)
        for _ in range(5):
            assert await pair.put() is OK
        assert pair.slave.log != pair.master.log
        await pair.stop_master()
        await asyncio.sleep(0.01)
        assert pair.slave.log == pair.master.log
        await pair.stop_slave()

    run(scenario())


def count_transfers(pair: ReplicaPair) -> list[int]:
    """A list that grows by the size of each transfer that the slave takes from now on."""
    connection, sizes = pair.client.connection, list[int]()
    assert connection is not None
    feed = connection._decoder.feed

    def counted(data: bytes) -> list[Transfer]:
        found = feed(data)
        sizes.extend(len(each.data) for each in found if each.data)
        return found

    connection._decoder.feed = counted  # type: ignore[method-assign]
    return sizes
