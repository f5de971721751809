"""The key index: RocketMQ's bytes, and messages found by id, key and tag in every circumstance."""

import asyncio
import os
import shutil
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from cometmq.store.index import index_builder, key_index
from cometmq.store.index import key_lookup as lookup
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.testing.sim_files import SimFiles
from cometmq.wire.records import index_file_layout
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.index_file_layout import decode_header, key_hash

HEADER, ENTRY = Struct(">qqqqii"), Struct(">iqii")
ALL = (0, 1 << 60)
SLOTS, ENTRIES = 1500, 60


async def put(harness, body=b"x", topic="T", queue_id=0, **pairs):
    raw = "".join(f"{key}\x01{value}\x02" for key, value in pairs.items()).encode()
    placed = harness.store.put(MessageDraft(topic, queue_id, body, raw, born_ms=1))
    assert placed.status is PutStatus.PUT_OK
    assert await harness.wait_until_durable() is PutStatus.PUT_OK
    return placed


async def find(harness, key, topic="T", count=64, span=ALL, **more):
    found = await harness.store.lookup.query(topic, key, count, *span, **more)
    return [stored.decode(raw).body for raw in found.records]


def index_files(harness):
    directory = harness.root / "index"
    return sorted(directory.iterdir()) if directory.exists() else []


async def reopen(harness, how, change=lambda: None):
    """Stop or kill the store, let something happen, reopen it."""
    if how == "stop":
        await harness.stop()
    else:
        await harness.store._maintenance.checkpoint_queues()
        await harness.crash()
    change()
    harness.open()


def java_chain(raw, hashed, slots=SLOTS):
    """Walk a file as RocketMQ's reader does: (phy_offset, seconds) newest first."""
    head = HEADER.unpack_from(raw)
    (number,) = Struct(">i").unpack_from(raw, 40 + hashed % slots * 4)
    while 0 < number < head[5]:
        found, phy_offset, seconds, number = ENTRY.unpack_from(raw, 40 + slots * 4 + number * 20)
        if found == hashed:
            yield phy_offset, seconds


def test_a_file_has_rocketmqs_size_and_keys_rocketmqs_hashes():
    assert IndexFileLayout(5_000_000, 20_000_000).file_bytes == 420_000_040
    assert key_hash("TopicTest", "k1") == 2746024
    assert key_hash("TopicTest", "7F00000100002A9F1C1C0000") == 394788178
    assert index_file_layout.stored_hash(0x80000000) == 0


def test_a_message_is_found_by_its_id_each_of_its_keys_and_its_tag_at_once(run_scenario):
    async def scenario(harness):
        harness.open()
        await put(harness, b"1", UNIQ_KEY="id-1", KEYS="order-7  user-1", TAGS="paid")
        await put(harness, b"2", UNIQ_KEY="id-2", KEYS="order-8 user-1", TAGS="paid")
        await put(harness, b"other", "U", UNIQ_KEY="id-3", KEYS="order-7")
        assert await find(harness, "id-1") == [b"1"]
        assert await find(harness, "order-8") == [b"2"]
        assert await find(harness, "user-1") == [b"1", b"2"]
        assert await find(harness, "paid", is_tag=True) == [b"1", b"2"]
        for nothing in ("paid", "order-9", ""):
            assert await find(harness, nothing) == []
        assert await find(harness, "order-7", "U") == [b"other"]

    run_scenario(scenario)


def test_a_java_reader_finds_the_same_in_the_bytes_on_disk(run_scenario):
    async def scenario(harness):
        harness.open()
        start = harness.clock.ms
        places = []
        for n in range(12):
            harness.clock.ms = start + n * 700
            placed = await put(harness, b"%d" % n, KEYS="even" if n % 2 == 0 else f"k{n}", TAGS="t")
            places.append(placed.phy_offset)
        await harness.stop()
        (path,) = index_files(harness)
        assert len(path.name) == 17
        assert path.stat().st_size == IndexFileLayout(SLOTS, ENTRIES).file_bytes
        raw = path.read_bytes()
        assert HEADER.unpack_from(raw)[:4] == (start, start + 11 * 700, places[0], places[11])
        assert HEADER.unpack_from(raw)[5] == 1 + 24
        used = sum(1 for at in range(40, 40 + SLOTS * 4, 4) if any(raw[at : at + 4]))
        assert HEADER.unpack_from(raw)[4] == used
        evens = [(places[n], n * 700 // 1000) for n in range(10, -1, -2)]
        assert list(java_chain(raw, key_hash("T", "even"))) == evens
        assert list(java_chain(raw, key_hash("T", "k5"))) == [(places[5], 3)]
        assert len(list(java_chain(raw, key_hash("T", "T#t")))) == 12

    run_scenario(scenario)


def test_keys_whose_hashes_collide_are_distinguished(run_scenario):
    async def scenario(harness):
        assert key_hash("T", "Aa") == key_hash("T", "BB")
        harness.open()
        await put(harness, b"1", KEYS="Aa")
        await put(harness, b"2", KEYS="BB")
        assert await find(harness, "Aa") == [b"1"]
        assert await find(harness, "BB") == [b"2"]

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["in memory", "stop"])
def test_a_lookup_that_ends_before_its_chain_says_so(run_scenario, monkeypatch, caplog, how):
    monkeypatch.setattr(key_index, "STEPS_MAX", 20)

    async def scenario(harness):
        harness.open()
        first_ms = harness.clock.ms
        for number in range(30):
            await put(harness, b"%d" % number, KEYS=f"k one-{number}")
            harness.clock.ms += 1000
        if how == "stop":
            await reopen(harness, how)
        query = harness.store.lookup.query
        assert (await query("T", "one-0", 9, *ALL)).is_complete
        assert (await query("T", "k", 20, *ALL)).is_complete
        assert "passes over messages" not in caplog.text
        for _ in range(2):
            found = await query("T", "k", 9, first_ms, first_ms + 5000)
            assert (found.records, found.is_complete) == ([], False)
        assert caplog.text.count("a lookup of 'k' in the topic T passes over messages") == 1

    run_scenario(scenario)


def test_letters_beyond_ascii_hash_by_utf_16_units(run_scenario):
    async def scenario(harness):
        harness.open()
        await put(harness, b"1", UNIQ_KEY="ключ-\U0001f680", KEYS="größe \U0001f680", TAGS="größe")
        for key in ("ключ-\U0001f680", "größe", "\U0001f680"):
            assert await find(harness, key) == [b"1"]
        assert await find(harness, "größe", is_tag=True) == [b"1"]
        file = harness.store._parts.index._index_files[-1]
        assert file.entry(1)[0] == key_hash("T", "ключ-\U0001f680")

    run_scenario(scenario)


def test_the_newest_come_first_when_there_are_more_and_the_answer_is_in_the_logs_order(
    run_scenario,
):
    async def scenario(harness):
        harness.open()
        for n in range(100):
            await put(harness, b"%d" % n, KEYS="k")
        assert await find(harness, "k", count=3) == [b"97", b"98", b"99"]
        assert len(await find(harness, "k")) == 64
        assert len(index_files(harness)) == 2

    run_scenario(scenario)


def test_only_messages_of_the_time_asked_for_are_found_across_files(run_scenario):
    async def scenario(harness):
        harness.open()
        start = harness.clock.ms
        for n in range(200):
            harness.clock.ms = start + n * 1000
            await put(harness, b"%d" % n, KEYS="k")
        assert await find(harness, "k", span=(start + 50_000, start + 53_000)) == [
            b"50",
            b"51",
            b"52",
            b"53",
        ]
        assert len(index_files(harness)) == 4
        assert await find(harness, "k", span=(start + 500_000, start + 600_000)) == []
        assert await find(harness, "k", span=(0, start - 1)) == []

    run_scenario(scenario)


def test_a_record_larger_than_what_is_read_at_once_is_indexed(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=1 << 20)
        await put(harness, bytes(200_000), KEYS="large", filler="x" * 20_000)
        await put(harness, b"after", KEYS="after")
        assert await find(harness, "large") == [bytes(200_000)]
        assert await find(harness, "after") == [b"after"]

    run_scenario(scenario)


@pytest.mark.parametrize("damaged", [1, 40])
def test_messages_behind_damage_in_their_file_are_indexed(run_scenario, damaged):
    """Of records that are longer and shorter than what is read at once."""

    async def scenario(harness):
        harness.open(commit_log_file_bytes=1 << 20)
        places = []
        for n in range(60):
            size = 5_000 if n % 10 else 70_000
            places.append((await put(harness, bytes(size), KEYS=f"k{n}")).phy_offset)
        await harness.stop()
        (path,) = harness.log_files()
        raw = bytearray(path.read_bytes())
        start, end = places[7] - 3, places[7 + damaged] - 100
        raw[start:end] = bytes(end - start)
        path.write_bytes(raw)
        shutil.rmtree(harness.root / "index")
        harness.open()
        found = [n for n in range(60) if await find(harness, f"k{n}")]
        assert found == [*range(6), *range(7 + damaged, 60)]

    run_scenario(scenario)


def test_half_messages_are_indexed_and_rollbacks_are_not(run_scenario):
    async def scenario(harness):
        harness.open()
        for sys_flag, name in ((0x4, "half"), (0x8, "whole"), (0xC, "gone")):
            harness.store.put(
                MessageDraft("T", 0, name.encode(), b"KEYS\x01tx\x02", sys_flag=sys_flag)
            )
        await harness.wait_until_durable()
        assert await find(harness, "tx") == [b"half", b"whole"]

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("enough", [5, 150])
def test_what_was_indexed_is_found_after_a_stop_of_any_kind_and_indexed_once(
    run_scenario, how, enough
):
    async def scenario(harness):
        harness.open()
        for n in range(enough):
            await put(harness, b"%d" % n, KEYS=f"k{n}", TAGS="t")
        await harness.store.lookup.catch_up()
        await reopen(harness, how)
        await put(harness, b"more", KEYS="more")
        for n in range(enough):
            assert await find(harness, f"k{n}") == [b"%d" % n]
        assert await find(harness, "more") == [b"more"]
        assert harness.store._parts.index.position == harness.store.max_phy_offset
        await harness.stop()
        entries = sum(decode_header(path.read_bytes()).number - 1 for path in index_files(harness))
        assert entries == 2 * enough + 1

    run_scenario(scenario)


def test_what_a_killed_broker_had_not_checkpointed_is_indexed_again_once(run_scenario):
    async def scenario(harness):
        harness.open()
        for n in range(20):
            await put(harness, b"%d" % n, KEYS="k")
        await harness.store.lookup.catch_up()
        await harness.store._maintenance.checkpoint_queues()
        for n in range(20, 30):
            await put(harness, b"%d" % n, KEYS="k")
        await harness.store.lookup.catch_up()
        harness.store._parts.index.flush_now()  # in the file, and the checkpoint does not know
        await harness.crash()
        harness.open()
        assert await find(harness, "k") == [b"%d" % n for n in range(30)]
        await harness.stop()
        (path,) = index_files(harness)
        assert len(list(java_chain(path.read_bytes(), key_hash("T", "k")))) == 30

    run_scenario(scenario)


def test_a_kill_right_after_a_file_was_begun_costs_nothing_of_the_one_before(run_scenario, caplog):
    async def scenario(harness):
        harness.open()
        for n in range(50):
            await put(harness, b"%d" % n, KEYS="k")
        await harness.store.lookup.catch_up()
        await harness.store._maintenance.checkpoint_queues()
        (first,) = index_files(harness)
        made = first.stat().st_ino
        for n in range(50, 70):
            await put(harness, b"%d" % n, KEYS="k")
        await harness.store.lookup.catch_up()
        assert len(index_files(harness)) == 2
        await harness.crash()
        harness.open()
        assert harness.store._parts.index.position > 0, "it goes on where the checkpoint says"
        assert first.stat().st_ino == made
        assert len(await find(harness, "k")) == 64
        assert await find(harness, "k", count=1) == [b"69"]

    run_scenario(scenario)
    assert "broken" not in caplog.text


def _zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def _cut(path):
    path.write_bytes(path.read_bytes()[:-30])


def _empty(path):
    path.write_bytes(b"")


def _nonsense(path):
    raw = bytearray(path.read_bytes())
    raw[36:40] = b"\x7f\xff\xff\xff"
    path.write_bytes(raw)


@pytest.mark.parametrize("harm", [_zeros, _cut, _empty, _nonsense, Path.unlink])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_broken_index_file_is_built_anew_from_the_log(run_scenario, harm, which, how):
    async def scenario(harness):
        harness.open()
        for n in range(150):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        await harness.store.lookup.catch_up()
        await reopen(harness, how, lambda: harm(index_files(harness)[which]))
        for n in range(0, 150, 7):
            assert await find(harness, f"k{n}") == [b"%d" % n]

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_missing_index_is_built_from_the_log(run_scenario, how):
    async def scenario(harness):
        harness.open()
        for n in range(150):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        await harness.store.lookup.catch_up()
        await reopen(harness, how, lambda: shutil.rmtree(harness.root / "index"))
        for n in range(0, 150, 7):
            assert await find(harness, f"k{n}") == [b"%d" % n]

    run_scenario(scenario)


@pytest.mark.parametrize(("letters", "body_bytes"), [(1, 0), (9_000, 0), (1, 70_000)])
def test_a_file_that_is_missing_amid_the_index_is_built_anew_however_long_its_records(
    run_scenario, letters, body_bytes
):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=1 << 20, max_index_num=10)
        long, body = "x" * letters, bytes(body_bytes)
        for n in range(25):
            await put(harness, b"%d" % n + body, KEYS=f"k{n}{long}")
        await harness.store.lookup.catch_up()
        await reopen(harness, "stop", lambda: index_files(harness)[1].unlink())
        for n in range(25):
            assert await find(harness, f"k{n}{long}") == [b"%d" % n + body]

    run_scenario(scenario)


@pytest.mark.parametrize("is_safe", [True, False])
def test_after_a_crash_of_another_broker_index_files_it_had_not_checkpointed_are_built_anew(
    run_scenario, is_safe
):
    async def scenario(harness):
        harness.open()
        for n in range(70):
            harness.clock.ms += 1000
            await put(harness, b"%d" % n, KEYS="a", TAGS="b")
        await harness.stop()
        checkpoint = harness.root / "checkpoint"
        raw = bytearray(checkpoint.read_bytes())
        if not is_safe:
            raw[16:24] = bytes(8)  # Java's own field; ours no longer counts then
        raw[96:] = bytes(len(raw) - 96)
        checkpoint.write_bytes(raw)
        (harness.root / "abort").write_bytes(b"1")
        names = index_files(harness)
        harness.clock.ms += 1000
        harness.open()
        assert len(await find(harness, "a")) == 64
        await harness.stop()
        assert (index_files(harness) == names) is is_safe
        raws = [path.read_bytes() for path in index_files(harness)]
        assert sum(decode_header(raw).number - 1 for raw in raws) == 140

    run_scenario(scenario)


def test_index_files_go_when_the_log_they_speak_of_has_gone(run_scenario):
    async def scenario(harness):
        harness.open(max_index_num=20)
        for _ in range(100):
            await put(harness, bytes(2000), KEYS="k")
        await harness.store.lookup.catch_up()
        await harness.store._maintenance.checkpoint_queues()
        harness.clock.ms += 80 * 3_600_000
        for path in harness.log_files():
            os.utime(path, (1, 1))
        harness.clock.hour = 4
        before = index_files(harness)
        await harness.store._maintenance.clean()
        first = harness.store.min_phy_offset
        assert first > 0
        gone = set(before) - set(index_files(harness))
        assert gone
        heads = [decode_header(path.read_bytes()) for path in index_files(harness)]
        assert all(head.end_phy >= first for head in heads[:-1])
        assert len(await find(harness, "k")) > 0

    run_scenario(scenario)


def test_an_index_that_is_switched_off_makes_no_file_and_finds_nothing(run_scenario):
    async def scenario(harness):
        harness.open(message_index_enable=False)
        await put(harness, b"1", KEYS="k")
        assert await find(harness, "k") == []
        await harness.stop()
        assert index_files(harness) == []
        harness.open(message_index_enable=True)
        assert await find(harness, "k") == [b"1"]

    run_scenario(scenario)


def test_a_fresh_file_of_full_size_takes_little_room_on_disk(run_scenario):
    async def scenario(harness):
        harness.open(max_hash_slot_num=5_000_000, max_index_num=20_000_000)
        for n in range(50):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        await harness.store.lookup.catch_up()
        await harness.stop()
        (path,) = index_files(harness)
        stat = path.stat()
        assert stat.st_size == 420_000_040
        assert stat.st_blocks * 512 < 1 << 20
        harness.open()
        assert await find(harness, "k49") == [b"49"]

    run_scenario(scenario)


def test_the_index_keeps_up_by_itself(run_scenario):
    async def scenario(harness):
        harness.open()
        await harness.store.start()
        for n in range(40):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        async with asyncio.timeout(10):
            while harness.store._parts.index.position < harness.store.max_phy_offset:
                await asyncio.sleep(0.01)

    run_scenario(scenario)


def test_the_index_takes_as_much_as_comes_and_a_slice_more_in_each_iteration(
    run_scenario, monkeypatch
):
    monkeypatch.setattr(lookup, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(index_builder, "CHUNK_BYTES", 4_000)

    async def scenario(harness):
        store = harness.open()
        for n in range(500):
            await put(harness, b"%d" % n, KEYS="k")
        behind = [store.lookup.behind_bytes]
        following = asyncio.ensure_future(store.lookup.follow_log())
        while not following.done():
            for _ in range(100):  # more than a slice in each iteration
                store.put(MessageDraft("T", 0, b"x", b"KEYS\x01k\x02", born_ms=1))
            await harness.wait_until_durable()
            behind.append(store.lookup.behind_bytes)
            assert len(behind) < 100
        assert behind[0] > 50_000
        assert behind[-1] < 4_000 + 100 * 200
        for _ in range(2):  # what is less than a slice is left to the next call
            await store.lookup.follow_log()
        assert store.lookup.behind_bytes == 0

    run_scenario(scenario)


def test_a_disk_too_full_for_the_index_refuses_sends_until_there_is_room(run_scenario, harness):
    harness.root = Path("/store")
    harness.files = disk = SimFiles(Random(1), harness.clock)

    async def scenario(harness):
        store = harness.open()
        for n in range(10):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        await store._maintenance.write_queues()
        for n in range(10, 100):
            await put(harness, b"%d" % n, KEYS=f"k{n}")
        await store.lookup.catch_up()
        await store._queues.write_pending()
        disk.room = 100
        harness.clock.ms += harness.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        assert store.put(MessageDraft("T", 0, b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert await find(harness, "k55") == [b"55"]
        disk.room = None
        harness.clock.ms += harness.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        await put(harness, b"after", KEYS="after")
        await harness.crash()
        disk.kill()
        harness.open()
        for n in range(0, 100, 9):
            assert await find(harness, f"k{n}") == [b"%d" % n]
        assert await find(harness, "after") == [b"after"]

    run_scenario(scenario)
