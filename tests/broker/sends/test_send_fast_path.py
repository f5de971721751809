"""The fast path of a send answers and stores as the slow path does, or leaves it to that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.commands import Client, Harness, make_topic, records, send_header
from broker.harness import new_disk, run, running
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.settings.store import StoreSettings
from cometmq.testing.sim_loop import SimLoop
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.wire.command import Command

OFFSETS = ("queueOffset", "msgId")


def watch(harness: Harness) -> list[bool]:
    """What the fast path says to each frame of connections that are made from now on."""
    server, said = harness.broker._server, []
    inner = server.fast_path

    class Watched:
        def __init__(self, peer):
            self.inner = inner(peer)

        def chunk(self, data):
            taken = self.inner.chunk(data)
            if taken:
                said.append(True)
            return taken

        def frame(self, frame):
            said.append(self.inner.frame(frame))
            return said[-1]

    server.fast_path = Watched
    return said


def test_headers_learned_from_a_connection_are_forgotten_when_it_closes() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await make_topic(harness)
            client = await harness.client()
            for _ in range(2):
                await client.send("T", b"x")
            learning = harness.broker._handlers.fast_path.learning
            assert learning.kept_bytes > 0
            client.close()
            await asyncio.sleep(1)
            assert learning.kept_bytes == 0

    run(scenario())


async def send_both_ways(harness: Harness, topic: str, **more) -> tuple[Command, Command, bool]:
    """The answers of a connection's first send and of its second, and whether that was short."""
    await make_topic(harness, topic)  # a topic that is made by the first send is a change
    said, client = watch(harness), await harness.client()
    first = await client.send(topic, **more)
    second = await client.send(topic, **more)
    return first, second, said[-1]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"properties": {"TAGS": "A", "KEYS": "k1 k2"}},
        {"properties": {"UNIQ_KEY": "AC1100021F9018B4AAC2000000000001", "TAGS": "B"}},
        {"properties": {"TRACE_ON": "false", "x": "y"}},
        {"properties": {"UNIQ_KEY": "with space"}},
        {"properties": {"SUBCLUSTER": "a", "XMSG_REGION": "b", "TRACE_ON": "false"}},
        {"flag": 7, "queue_id": 3, "reconsume_times": 2, "born_timestamp": 12},
        {"sys_flag": 1, "body": b"\x78\x9c\x03\x00\x00\x00\x00\x01"},
        {"body": b"x" * 70_000},
    ],
)
def test_both_ways_store_and_answer_the_same(more) -> None:
    async def scenario() -> None:
        async with running() as harness:
            long, short, was_short = await send_both_ways(harness, "T", **more)
            assert was_short
            assert long.code == short.code == 0
            assert {k: v for k, v in long.ext.items() if k not in OFFSETS} == {
                k: v for k, v in short.ext.items() if k not in OFFSETS
            }
            assert (long.ext["queueOffset"], short.ext["queueOffset"]) == ("0", "1")
            puller = await harness.client()
            one, two = records(await puller.pull("T", queue_id=more.get("queue_id", 0)))
            assert two.phy_offset == int(short.ext["msgId"][16:], 16)
            for field in one._fields:
                if field not in ("queue_offset", "phy_offset", "store_ms", "properties"):
                    assert getattr(one, field) == getattr(two, field), field
            assert one.properties[:-20] == two.properties[:-20]

    run(scenario())


def test_properties_that_change_from_message_to_message_are_stored_as_they_came() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await make_topic(harness)
            said, client = watch(harness), await harness.client()
            for number in range(30):
                keys = "k" * (number % 10 + 1)
                pairs = {"UNIQ_KEY": f"K{number:031d}", "KEYS": keys, "TAGS": "A"}
                answer = await client.send("T", b"%d" % number, properties=pairs)
                assert answer.ext["transactionId"] == f"K{number:031d}"
            assert sum(said) >= 10  # the first of each length and width of opaque are learned from
            found = records(await client.pull("T"))
            assert [record.body for record in found] == [b"%d" % n for n in range(30)]
            for number, record in enumerate(found):
                keys = b"k" * (number % 10 + 1)
                assert b"KEYS\x01%b\x02" % keys in record.properties

    run(scenario())


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"DELAY": "3"}},
        {"properties": {"MSG_REGION": "elsewhere", "CLUSTER": "other", "x": "y"}},
        {"properties": {"__RMQ.TRANSIENT.x": "y"}},
        {"properties": {"TRAN_MSG": "true"}},
        {"properties": {"TIMER_DELAY_MS": "3"}},
        {"sys_flag": 4},
        {"queue_id": 99},
        {"body": b""},
        {"body": b"x" * 200, "topic": "%RETRY%nobody"},
        {"batch": True},
    ],
)
def test_what_is_out_of_the_ordinary_takes_the_slow_path(more) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.send("T")
            fields = {"topic": "T", **more}
            first, second, was_short = await send_both_ways(harness, fields.pop("topic"), **fields)
            assert not was_short
            assert first.code == second.code

    run(scenario())


def test_a_deleted_topic_is_not_written_to_by_what_was_learned() -> None:
    async def scenario() -> None:
        async with running(auto_create_topic_enable=False) as harness:
            await make_topic(harness)
            _, answer, was_short = await send_both_ways(harness, "T")
            assert (answer.code, was_short) == (0, True)
            client = await learned(harness)
            harness.broker.state.topics.delete("T")
            harness.broker.store.delete_topic("T")
            assert (await client.send("T")).code == 17
            await make_topic(harness)
            for number in range(3):
                assert (await client.send("T")).ext["queueOffset"] == str(number)

    run(scenario())


async def learned(harness: Harness) -> Client:
    await make_topic(harness)
    client = await harness.client()
    for _ in range(2):
        assert (await client.send("T")).code == 0
    return client


def test_under_sync_flush_an_answer_waits_for_the_disk() -> None:
    async def scenario() -> None:
        store = StoreSettings(commit_log_file_bytes=1 << 24, flush_disk_type="SYNC_FLUSH")
        async with running(store) as harness:
            long, short, was_short = await send_both_ways(harness, "T")
            assert (long.code, short.code, was_short) == (0, 0, True)
            at = int(short.ext["msgId"][16:], 16)
            assert harness.broker.store._log.flushed > at

    run(scenario())


def test_a_store_that_takes_nothing_is_answered_as_by_the_slow_path() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await learned(harness)
            harness.broker.store._parts.flusher.failure = OSError("no space left")
            short = await client.send("T")
            long = await (await harness.client()).send("T")
            assert short.code == long.code == 14
            assert short.remark == long.remark
            harness.broker.store._parts.flusher.failure = None

    run(scenario())


def test_a_write_that_fails_fails_the_send_and_leaves_no_gap() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            said, client = watch(harness), await learned(harness)
            disk.room = 0
            answers = [await client.send("T") for _ in range(3)]
            assert {answer.code for answer in answers} == {14}
            disk.room = None
            assert (await client.send("T")).ext["queueOffset"] == "2"
            assert said[1:] == [True] * 5

    run(scenario())


class BothWays:
    """A broker, and two connections of which one has no fast path."""

    def __init__(self, harness: Harness, short: Client, long: Client, loop: asyncio.Runner) -> None:
        self._harness, self._short, self._long, self._loop = harness, short, long, loop

    def compare(self, raw: str) -> None:
        self._loop.run(self._compare(raw))

    async def _compare(self, raw: str) -> None:
        header = replace(send_header("T"), properties=raw)
        first, long, short = [
            await client.call(RequestCode.SEND_MESSAGE_V2, header, b"x")
            for client in (self._short, self._long, self._short)
        ]
        assert (first.code, first.remark) == (long.code, long.remark) == (short.code, short.remark)
        if short.code == 0 and "UNIQ_KEY" in properties.decode(raw.encode()):  # else ours differ
            fields = [{k: v for k, v in a.ext.items() if k not in OFFSETS} for a in (long, short)]
            assert fields[0] == fields[1]
            assert self._stored(long) == self._stored(short)

    def _stored(self, answer: Command) -> tuple[str, bytes, int]:
        store = self._harness.broker.store
        record = stored.decode(store.record_at(int(answer.ext["msgId"][16:], 16)))
        entry = store.entry(record.topic, record.queue_id, record.queue_offset)
        raw = stored.shown_properties(record.properties)
        return record.topic, raw, 0 if record.topic == SCHEDULE_TOPIC else entry[2]


@pytest.fixture(scope="module")
def both_ways() -> Iterator[BothWays]:
    with asyncio.Runner(loop_factory=SimLoop) as loop:
        broker = running()
        harness = loop.run(broker.__aenter__())
        loop.run(make_topic(harness, "T"))
        server = harness.broker._server
        fast_path, server.fast_path = server.fast_path, None
        long = loop.run(learned(harness))
        server.fast_path = fast_path
        yield BothWays(harness, loop.run(learned(harness)), long, loop)
        loop.run(broker.__aexit__(None, None, None))


names = st.sampled_from(
    [
        *(
            "UNIQ_KEY",
            "KEYS",
            "TAGS",
            "WAIT",
            "__SHARDINGKEY",
            "a",
            "%s",
            "{x}",
            "\u00e9",
            "a b",
            "",
        ),
        *(
            "TRACE_ON",
            "CLUSTER",
            "XCLUSTER",
            "MSG_REGION",
            "DELAY",
            "POP_CK",
            "TRAN_MSG",
            "__CRC32#",
        ),
        *("__x", "REAL_TOPIC", "INNER_NUM", "TIMER_DELAY_MS", "7E57AB1E0000", "RETRY_TOPIC"),
    ]
)
values = st.one_of(
    st.sampled_from(
        ["", "true", "3", "A", "%b%%", "7E57AB1E0000", "CLUSTER\x01x", "k1 k2", "U" * 4097]
    ),
    st.text(alphabet='ab01 %{}\\"\u00e9\U0001f600~', max_size=8),
)
pairs = st.lists(st.tuples(names, values), max_size=5)


@settings(max_examples=150, derandomize=True)
@given(given_pairs=pairs, unique=st.integers(-1, 5), end=st.sampled_from(["", "\x02", "\x02\x02"]))
@example(given_pairs=[("XCLUSTER", "x"), ("TRACE_ON", "a")], unique=0, end="")
def test_any_properties_are_stored_and_answered_the_same_on_both_ways(
    both_ways: BothWays, given_pairs: list[tuple[str, str]], unique: int, end: str
) -> None:
    items = [f"{name}\x01{value}" for name, value in given_pairs]
    if 0 <= unique <= len(items):
        items.insert(unique, "UNIQ_KEY\x01AC1100021F9018B4AAC2000000000001")
    both_ways.compare("\x02".join(items) + end)
