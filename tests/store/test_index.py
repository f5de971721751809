"""The key index: RocketMQ's bytes, and messages found by id, key and tag in every circumstance."""

import asyncio
import os
import shutil
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from cometmq.store.index import key_index as index
from cometmq.store.index import key_lookup as lookup
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.testing.sim_files import SimFiles
from cometmq.wire import index_file_layout
from cometmq.wire import log_record as stored
from cometmq.wire.index_file_layout import decode_header, key_hash

HEADER, ENTRY = Struct(">qqqqii"), Struct(">iqii")
ALL = (0, 1 << 60)
SLOTS, ENTRIES = 1500, 60


async def put(shop, body=b"x", topic="T", queue_id=0, **pairs):
    raw = "".join(f"{key}\x01{value}\x02" for key, value in pairs.items()).encode()
    placed = shop.store.put(MessageDraft(topic, queue_id, body, raw, born_ms=1))
    assert placed.status is PutStatus.PUT_OK
    assert await shop.wait_until_durable() is PutStatus.PUT_OK
    return placed


async def find(shop, key, topic="T", count=64, span=ALL, **more):
    found = await shop.store.lookup.query(topic, key, count, *span, **more)
    return [stored.decode(raw).body for raw in found.records]


def index_files(shop):
    directory = shop.root / "index"
    return sorted(directory.iterdir()) if directory.exists() else []


async def reopen(shop, how, change=lambda: None):
    """Leave in order or as a killed process does, let something happen, open again."""
    if how == "stop":
        await shop.stop()
    else:
        await shop.store._maintenance.checkpoint_queues()
        await shop.crash()
    change()
    shop.open()


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


def test_a_message_is_found_by_its_id_each_of_its_keys_and_its_tag_at_once(tell):
    async def story(shop):
        shop.open()
        await put(shop, b"1", UNIQ_KEY="id-1", KEYS="order-7  user-1", TAGS="paid")
        await put(shop, b"2", UNIQ_KEY="id-2", KEYS="order-8 user-1", TAGS="paid")
        await put(shop, b"other", "U", UNIQ_KEY="id-3", KEYS="order-7")
        assert await find(shop, "id-1") == [b"1"]
        assert await find(shop, "order-8") == [b"2"]
        assert await find(shop, "user-1") == [b"1", b"2"]
        assert await find(shop, "paid", is_tag=True) == [b"1", b"2"]
        for nothing in ("paid", "order-9", ""):
            assert await find(shop, nothing) == []
        assert await find(shop, "order-7", "U") == [b"other"]

    tell(story)


def test_a_java_reader_finds_the_same_in_the_bytes_on_disk(tell):
    async def story(shop):
        shop.open()
        start = shop.clock.ms
        places = []
        for n in range(12):
            shop.clock.ms = start + n * 700
            placed = await put(shop, b"%d" % n, KEYS="even" if n % 2 == 0 else f"k{n}", TAGS="t")
            places.append(placed.phy_offset)
        await shop.stop()
        (path,) = index_files(shop)
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

    tell(story)


def test_keys_whose_hashes_collide_are_told_apart(tell):
    async def story(shop):
        assert key_hash("T", "Aa") == key_hash("T", "BB")
        shop.open()
        await put(shop, b"1", KEYS="Aa")
        await put(shop, b"2", KEYS="BB")
        assert await find(shop, "Aa") == [b"1"]
        assert await find(shop, "BB") == [b"2"]

    tell(story)


def test_letters_beyond_ascii_hash_by_utf_16_units(tell):
    async def story(shop):
        shop.open()
        await put(shop, b"1", UNIQ_KEY="ключ-\U0001f680", KEYS="größe \U0001f680", TAGS="größe")
        for key in ("ключ-\U0001f680", "größe", "\U0001f680"):
            assert await find(shop, key) == [b"1"]
        assert await find(shop, "größe", is_tag=True) == [b"1"]
        file = shop.store._parts.index._index_files[-1]
        assert file.entry(1)[0] == key_hash("T", "ключ-\U0001f680")

    tell(story)


def test_the_newest_come_first_when_there_are_more_and_the_answer_is_in_the_logs_order(tell):
    async def story(shop):
        shop.open()
        for n in range(100):
            await put(shop, b"%d" % n, KEYS="k")
        assert await find(shop, "k", count=3) == [b"97", b"98", b"99"]
        assert len(await find(shop, "k")) == 64
        assert len(index_files(shop)) == 2

    tell(story)


def test_only_messages_of_the_time_asked_for_are_found_across_files(tell):
    async def story(shop):
        shop.open()
        start = shop.clock.ms
        for n in range(200):
            shop.clock.ms = start + n * 1000
            await put(shop, b"%d" % n, KEYS="k")
        assert await find(shop, "k", span=(start + 50_000, start + 53_000)) == [
            b"50",
            b"51",
            b"52",
            b"53",
        ]
        assert len(index_files(shop)) == 4
        assert await find(shop, "k", span=(start + 500_000, start + 600_000)) == []
        assert await find(shop, "k", span=(0, start - 1)) == []

    tell(story)


def test_a_record_larger_than_what_is_read_at_once_is_indexed(tell):
    async def story(shop):
        shop.open(commit_log_file_bytes=1 << 20)
        await put(shop, bytes(200_000), KEYS="large", filler="x" * 20_000)
        await put(shop, b"after", KEYS="after")
        assert await find(shop, "large") == [bytes(200_000)]
        assert await find(shop, "after") == [b"after"]

    tell(story)


def test_half_messages_are_indexed_and_rollbacks_are_not(tell):
    async def story(shop):
        shop.open()
        for sys_flag, name in ((0x4, "half"), (0x8, "whole"), (0xC, "gone")):
            shop.store.put(
                MessageDraft("T", 0, name.encode(), b"KEYS\x01tx\x02", sys_flag=sys_flag)
            )
        await shop.wait_until_durable()
        assert await find(shop, "tx") == [b"half", b"whole"]

    tell(story)


@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("enough", [5, 150])
def test_what_was_indexed_is_found_after_a_stop_of_any_kind_and_filed_once(tell, how, enough):
    async def story(shop):
        shop.open()
        for n in range(enough):
            await put(shop, b"%d" % n, KEYS=f"k{n}", TAGS="t")
        await shop.store.lookup.catch_up()
        await reopen(shop, how)
        await put(shop, b"more", KEYS="more")
        for n in range(enough):
            assert await find(shop, f"k{n}") == [b"%d" % n]
        assert await find(shop, "more") == [b"more"]
        assert shop.store._parts.index.position == shop.store.max_phy_offset
        await shop.stop()
        entries = sum(decode_header(path.read_bytes()).number - 1 for path in index_files(shop))
        assert entries == 2 * enough + 1

    tell(story)


def test_what_a_killed_broker_had_not_vouched_for_is_filed_again_once(tell):
    async def story(shop):
        shop.open()
        for n in range(20):
            await put(shop, b"%d" % n, KEYS="k")
        await shop.store.lookup.catch_up()
        await shop.store._maintenance.checkpoint_queues()
        for n in range(20, 30):
            await put(shop, b"%d" % n, KEYS="k")
        await shop.store.lookup.catch_up()
        shop.store._parts.index.flush_now()  # in the file, and the checkpoint does not know
        await shop.crash()
        shop.open()
        assert await find(shop, "k") == [b"%d" % n for n in range(30)]
        await shop.stop()
        (path,) = index_files(shop)
        assert len(list(java_chain(path.read_bytes(), key_hash("T", "k")))) == 30

    tell(story)


def test_a_kill_right_after_a_file_was_begun_costs_nothing_of_the_one_before(tell, caplog):
    async def story(shop):
        shop.open()
        for n in range(50):
            await put(shop, b"%d" % n, KEYS="k")
        await shop.store.lookup.catch_up()
        await shop.store._maintenance.checkpoint_queues()
        (first,) = index_files(shop)
        made = first.stat().st_ino
        for n in range(50, 70):
            await put(shop, b"%d" % n, KEYS="k")
        await shop.store.lookup.catch_up()
        assert len(index_files(shop)) == 2
        await shop.crash()
        shop.open()
        assert shop.store._parts.index.position > 0, "it goes on where it was vouched for"
        assert first.stat().st_ino == made
        assert len(await find(shop, "k")) == 64
        assert await find(shop, "k", count=1) == [b"69"]

    tell(story)
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
def test_a_broken_index_file_is_built_anew_from_the_log(tell, harm, which, how):
    async def story(shop):
        shop.open()
        for n in range(150):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        await shop.store.lookup.catch_up()
        await reopen(shop, how, lambda: harm(index_files(shop)[which]))
        for n in range(0, 150, 7):
            assert await find(shop, f"k{n}") == [b"%d" % n]

    tell(story)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_missing_index_is_built_from_the_log(tell, how):
    async def story(shop):
        shop.open()
        for n in range(150):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        await shop.store.lookup.catch_up()
        await reopen(shop, how, lambda: shutil.rmtree(shop.root / "index"))
        for n in range(0, 150, 7):
            assert await find(shop, f"k{n}") == [b"%d" % n]

    tell(story)


@pytest.mark.parametrize("is_safe", [True, False])
def test_after_another_brokers_crash_files_it_had_not_declared_safe_are_built_anew(tell, is_safe):
    async def story(shop):
        shop.open()
        for n in range(70):
            shop.clock.ms += 1000
            await put(shop, b"%d" % n, KEYS="a", TAGS="b")
        await shop.stop()
        checkpoint = shop.root / "checkpoint"
        raw = bytearray(checkpoint.read_bytes())
        if not is_safe:
            raw[16:24] = bytes(8)  # Java's own field; ours no longer counts then
        raw[96:] = bytes(len(raw) - 96)
        checkpoint.write_bytes(raw)
        (shop.root / "abort").write_bytes(b"1")
        names = index_files(shop)
        shop.clock.ms += 1000
        shop.open()
        assert len(await find(shop, "a")) == 64
        await shop.stop()
        assert (index_files(shop) == names) is is_safe
        raws = [path.read_bytes() for path in index_files(shop)]
        assert sum(decode_header(raw).number - 1 for raw in raws) == 140

    tell(story)


def test_index_files_go_when_the_log_they_speak_of_has_gone(tell):
    async def story(shop):
        shop.open(max_index_num=20)
        for _ in range(100):
            await put(shop, bytes(2000), KEYS="k")
        await shop.store.lookup.catch_up()
        await shop.store._maintenance.checkpoint_queues()
        shop.clock.ms += 80 * 3_600_000
        for path in shop.log_files():
            os.utime(path, (1, 1))
        shop.clock.hour = 4
        before = index_files(shop)
        await shop.store._maintenance.clean()
        first = shop.store.min_phy_offset
        assert first > 0
        gone = set(before) - set(index_files(shop))
        assert gone
        heads = [decode_header(path.read_bytes()) for path in index_files(shop)]
        assert all(head.end_phy >= first for head in heads[:-1])
        assert len(await find(shop, "k")) > 0

    tell(story)


def test_an_index_that_is_switched_off_makes_no_file_and_finds_nothing(tell):
    async def story(shop):
        shop.open(message_index_enable=False)
        await put(shop, b"1", KEYS="k")
        assert await find(shop, "k") == []
        await shop.stop()
        assert index_files(shop) == []
        shop.open(message_index_enable=True)
        assert await find(shop, "k") == [b"1"]

    tell(story)


def test_a_fresh_file_of_full_size_takes_little_room_on_disk(tell):
    async def story(shop):
        shop.open(max_hash_slot_num=5_000_000, max_index_num=20_000_000)
        for n in range(50):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        await shop.store.lookup.catch_up()
        await shop.stop()
        (path,) = index_files(shop)
        stat = path.stat()
        assert stat.st_size == 420_000_040
        assert stat.st_blocks * 512 < 1 << 20
        shop.open()
        assert await find(shop, "k49") == [b"49"]

    tell(story)


def test_the_index_keeps_up_by_itself(tell):
    async def story(shop):
        shop.open()
        await shop.store.start()
        for n in range(40):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        async with asyncio.timeout(10):
            while shop.store._parts.index.position < shop.store.max_phy_offset:
                await asyncio.sleep(0.01)

    tell(story)


def test_messages_count_as_fast_by_the_bytes_of_the_last_look():
    rush = lookup._Rush()
    assert not rush.is_on(0, 100.0)
    assert not rush.is_on(1 << 30, 100.001)  # too early to look again
    assert rush.is_on(1 << 20, 100.1)
    assert rush.is_on((1 << 20) + 1, 100.105)
    assert not rush.is_on((1 << 20) + 1000, 100.2)


@pytest.mark.parametrize("bound", [1 << 40, 0])
def test_the_index_lets_fast_messages_go_first_up_to_a_bound(tell, monkeypatch, bound):
    monkeypatch.setattr(index, "LAG_BYTES_MAX", bound)
    monkeypatch.setattr(lookup, "_FAST_BYTES_A_S", -(1 << 60))  # anything is fast
    monkeypatch.setattr(lookup, "_LOOK_S", -1)

    async def story(shop):
        store = shop.open()
        count = 3 * index.BATCH_RECORDS
        for n in range(count):
            await put(shop, b"%d" % n, KEYS="k")
        keeping_up = asyncio.ensure_future(store.lookup.follow_log())
        await asyncio.wait([keeping_up], timeout=0.2 if bound else 5)
        assert keeping_up.done() is (bound == 0)
        keeping_up.cancel()
        assert (store.lookup._index.position == store.max_phy_offset) is (bound == 0)
        assert len(await find(shop, "k", count=count)) == count  # who asks need not wait

    tell(story)


def test_a_disk_too_full_for_the_index_refuses_sends_until_there_is_room(tell, shop):
    shop.root = Path("/store")
    shop.files = disk = SimFiles(Random(1), shop.clock)

    async def story(shop):
        store = shop.open()
        for n in range(10):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        await store._maintenance.write_queues()
        for n in range(10, 100):
            await put(shop, b"%d" % n, KEYS=f"k{n}")
        await store.lookup.catch_up()
        await store._queues.write_pending()
        disk.room = 100
        shop.clock.ms += shop.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        assert store.put(MessageDraft("T", 0, b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert await find(shop, "k55") == [b"55"]
        disk.room = None
        shop.clock.ms += shop.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        await put(shop, b"after", KEYS="after")
        await shop.crash()
        disk.kill()
        shop.open()
        for n in range(0, 100, 9):
            assert await find(shop, f"k{n}") == [b"%d" % n]
        assert await find(shop, "after") == [b"after"]

    tell(story)
