"""The fast path of a pull answers and counts as the slow path does, or leaves it to that."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker.commands import Client, Harness, records
from broker.harness import SMALL_STORE, new_disk, run, running
from cometmq.broker.pulls import pull_fast_path as pull_fast
from cometmq.broker.pulls.pull_check import PullCheck
from cometmq.broker.pulls.pull_reader import PullReader
from cometmq.net.connection import JOINED_BYTES_MAX
from cometmq.store.log.commit_log import NOWHERE
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def filled(count: int = 40, **settings) -> AsyncIterator[Harness]:
    """A broker with messages in queue 0 of T."""
    async with running(**settings) as harness:
        harness.broker.state.topics.ensure("T", 4)
        client = await harness.client()
        for number in range(count):
            tags = {"TAGS": "AB"[number % 2]}
            await client.send("T", b"%d" % number, properties=tags)
        yield harness


def watch(monkeypatch) -> list[bool]:
    """What the fast path says to each pull whose header it looks at."""
    said: list[bool] = []
    take = pull_fast.PullFastPath.take

    def watched(self, data, at):
        taken = take(self, data, at)
        said.append(taken > 0)
        return taken

    monkeypatch.setattr(pull_fast.PullFastPath, "take", watched)
    return said


def noting(method, done):
    """The method, which appends its name whenever it is called."""

    def noted(*given, **named):
        done.append(method.__name__)
        return method(*given, **named)

    return noted


async def consumer(harness: Harness, **more) -> Client:
    """A client whose pulls are known; it has pulled twice."""
    client = await harness.client()
    await client.pull("T", **more)
    await client.pull("T", **more)
    return client


def facts(harness: Harness, group: str = "CG") -> tuple[object, ...]:
    state = harness.broker.state
    counters = [
        (each.count, each.bytes, each.extra)
        for family in (state.stats._gets, state.stats._queue_gets)
        for each in family.children.values()
    ]
    return counters, state.offsets.pulled(group, "T", 0), state.offsets.committed(group, "T", 0)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"queue_offset": 7, "max_msg_nums": 5},
        {"subscription": "A"},
        {"subscription": "A || B", "max_msg_nums": 3},
        {"sys_flag": 7, "commit_offset": 4, "suspend_timeout_ms": 1_000},
        {"max_msg_bytes": 300},
        {"max_msg_nums": 1000, "is_large": True},
        {"max_msg_nums": 4, "is_large": True, "large_count": 30},
        {"max_msg_nums": 0},
        {"sub_version": 99, "expression_type": None},
    ],
)
def test_both_ways_answer_and_count_the_same(monkeypatch, more) -> None:
    async def scenario() -> None:
        async with filled() as harness:
            said, client = watch(monkeypatch), await harness.client()
            before = facts(harness)
            long = await client.pull("T", **more)
            between = facts(harness)
            short = await client.pull("T", **more)
            after = facts(harness)
            assert said == [False, True]
            assert (long.code, long.remark, long.ext) == (short.code, short.remark, short.ext)
            assert long.body == short.body
            assert long.code == 0
            assert after[1:] == between[1:]
            first, second = between[0] or before[0], after[0]
            doubled = [tuple(2 * number for number in each) for each in first]
            assert second == doubled

    run(scenario())


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"queue_offset": 40}, ResponseCode.PULL_NOT_FOUND),
        ({"queue_offset": 90}, ResponseCode.PULL_OFFSET_MOVED),
        ({"queue_id": 3}, ResponseCode.PULL_NOT_FOUND),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "C"}, ResponseCode.PULL_RETRY_IMMEDIATELY),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"expression_type": "SQL92", "subscription": "x = 1"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_brings_no_messages_takes_the_slow_path(monkeypatch, more, code) -> None:
    async def scenario() -> None:
        async with filled() as harness:
            said, client = watch(monkeypatch), await consumer(harness, **more)
            answer = await client.pull("T", **more)
            assert (answer.code, said) == (code, [False] * 3)

    run(scenario())


def test_a_pull_at_the_tail_is_held_and_the_next_one_is_fast_again(monkeypatch) -> None:
    async def scenario() -> None:
        async with filled() as harness:
            more = {"sys_flag": 6, "suspend_timeout_ms": 20_000}
            client = await consumer(harness, queue_offset=39, **more)
            said = watch(monkeypatch)
            waiting = asyncio.ensure_future(client.pull("T", queue_offset=40, **more))
            async with asyncio.timeout(10):
                while harness.broker.state.held_requests.count != 1:
                    await asyncio.sleep(0.005)
            await (await harness.client()).send("T", b"new")
            assert [each.body for each in records(await waiting)] == [b"new"]
            assert records(await client.pull("T", queue_offset=40, **more))[0].queue_offset == 40
            assert said == [False, True]

    run(scenario())


def test_a_pull_that_will_be_held_is_checked_and_read_once(monkeypatch) -> None:
    async def scenario() -> None:
        async with filled() as harness:
            more = {"sys_flag": 6, "suspend_timeout_ms": 1_000}
            client, done = await consumer(harness, queue_offset=39, **more), []
            said = watch(monkeypatch)
            for owner, name in ((PullCheck, "check"), (PullReader, "read")):
                monkeypatch.setattr(owner, name, noting(getattr(owner, name), done))
            waiting = asyncio.ensure_future(client.pull("T", queue_offset=40, **more))
            async with asyncio.timeout(10):
                while harness.broker.state.held_requests.count != 1:
                    await asyncio.sleep(0.005)
            assert (said, done) == ([False], ["check", "read"])
            assert (await waiting).code == ResponseCode.PULL_NOT_FOUND

    run(scenario())


def test_whatever_an_administrator_changes_holds_for_the_next_pull() -> None:
    async def scenario() -> None:
        async with filled() as harness:
            client, state = await consumer(harness), harness.broker.state
            group, topic = state.groups.table["CG"], state.topics.table["T"]
            state.groups.table["CG"] = replace(group, consume_enable=False)
            assert (await client.pull("T")).code == ResponseCode.NO_PERMISSION
            state.groups.table["CG"] = replace(group, group_sys_flag=7)
            assert (await client.pull("T")).ext["groupSysFlag"] == "7"
            state.topics.table["T"] = replace(topic, perm=2)
            assert (await client.pull("T")).code == ResponseCode.NO_PERMISSION
            state.topics.table["T"] = replace(topic, topic_sys_flag=3)
            assert (await client.pull("T")).ext["topicSysFlag"] == "3"
            settings = replace(harness.broker.settings, broker_permission=2)
            harness.broker._handlers.pull.adjust(settings)
            assert (await client.pull("T")).code == ResponseCode.NO_PERMISSION
            harness.broker._handlers.pull.adjust(replace(settings, broker_permission=6))
            harness.broker.store.adjust(replace(SMALL_STORE, transfer_count_in_memory_max=5))
            assert len(records(await client.pull("T"))) == 5
            state.topics.delete("T")
            harness.broker.store.delete_topic("T")
            assert (await client.pull("T")).code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario())


def test_a_reset_moves_a_consumer_whose_pulls_are_known() -> None:
    async def scenario() -> None:
        async with filled() as harness:
            more = {"sys_flag": 7, "commit_offset": 5}
            client, offsets = await consumer(harness, **more), harness.broker.state.offsets
            assert offsets.committed("CG", "T", 0) == 5
            offsets.reset("CG", "T", 0, 21)
            moved = await client.pull("T", **more)
            assert (moved.code, moved.ext["nextBeginOffset"]) == (21, "21")
            assert offsets.committed("CG", "T", 0) == 21
            assert len(records(await client.pull("T", queue_offset=21, **more))) == 19

    run(scenario())


def test_what_is_not_in_memory_is_fetched_before_the_answer(monkeypatch) -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with filled(disk=disk) as harness:
            client, said = await consumer(harness), watch(monkeypatch)
            files = harness.broker.store._log.mapped_files
            files.resident_from = NOWHERE  # as if all had been written long ago
            disk.is_asleep = True
            for _ in range(2):
                assert len(records(await client.pull("T"))) == 32
            assert said == [False, True]
            log = files.segments[0].open()._inode
            assert (log, 0) in disk.fetched

    run(scenario())


@pytest.mark.parametrize("is_fast", [True, False])
def test_reads_of_less_than_a_millisecond_count_right_in_the_mean(is_fast, monkeypatch) -> None:
    async def scenario() -> None:
        async with filled() as harness:
            client, readings = await consumer(harness), itertools.count()
            read_ms = harness.broker.state.stats._read_ms.child("T", "0", "CG")
            assert read_ms.count == 0
            handler = harness.broker._handlers.pull
            monkeypatch.setattr(
                handler, "_monotonic_s", lambda: (next(readings) * 4 + 0.5) / 10_000
            )
            said = watch(monkeypatch)
            for _ in range(10):
                await (client if is_fast else await harness.client()).pull("T")
            assert (said, next(readings)) == ([is_fast] * 10, 20)
            assert read_ms.count == 4

    run(scenario())


def test_a_long_answer_is_whole_and_so_are_many_pulls_in_one_chunk(monkeypatch) -> None:
    async def scenario() -> None:
        async with filled(0) as harness:
            body, sender = b"x" * 20_000, await harness.client()
            for _ in range(12):
                await sender.send("T", body)
            client, said = await consumer(harness), watch(monkeypatch)
            answers = await asyncio.gather(*[client.pull("T") for _ in range(100)])
            assert all(len(answer.body) > JOINED_BYTES_MAX for answer in answers)
            assert all(len(records(answer)) == 12 for answer in answers)
            assert True in said

    run(scenario())


def test_pulls_and_sends_may_share_a_connection_and_a_chunk() -> None:
    async def scenario() -> None:
        async with filled() as harness:
            client = await consumer(harness)
            await client.send("T", queue_id=1)
            works = [
                client.pull("T", queue_offset=n) if n % 3 else client.send("T", queue_id=1)
                for n in range(30)
            ]
            answers = await asyncio.gather(*works)
            assert [answer.code for answer in answers] == [0] * 30
            for number, answer in enumerate(answers):
                if number % 3:
                    assert records(answer)[0].queue_offset == number
            assert harness.broker.store.max_offset("T", 1) == 11

    run(scenario())
