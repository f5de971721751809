"""A store is whole again after stops of every kind and after damage to its files."""

import asyncio
import shutil
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.testing.sim_files import SimFiles
from cometmq.wire import log_record as stored

ABORT, CHECKPOINT = "abort", "checkpoint"


async def fill(shop, count=60, topic="T", queues=2):
    for number in range(count):
        await shop.put(b"%s %d" % (topic.encode(), number), topic, number % queues)


def want(count=60, topic="T", queue_id=0, queues=2):
    return [b"%s %d" % (topic.encode(), n) for n in range(queue_id, count, queues)]


async def leave(shop, how):
    if how == "stop":
        await shop.stop()
    else:
        await shop.crash()


HOW = pytest.mark.parametrize("how", ["stop", "crash"])


@HOW
def test_everything_is_there_again(tell, how):
    async def story(shop):
        shop.open()
        await fill(shop)
        await leave(shop, how)
        assert (shop.root / ABORT).exists() is (how == "crash")
        shop.open()
        assert [shop.bodies("T", q) for q in (0, 1)] == [want(queue_id=q) for q in (0, 1)]
        assert (await shop.put(b"more")).queue_offset == 30

    tell(story)


def test_an_empty_store_opens_again(tell):
    async def story(shop):
        for how in ("stop", "stop", "crash", "crash", "stop"):
            shop.open()
            assert shop.store.queues() == []
            await leave(shop, how)

    tell(story)


@HOW
def test_missing_queues_are_built_again_from_the_log(tell, how):
    async def story(shop):
        shop.open()
        await fill(shop)
        await fill(shop, 9, "U")
        await shop.store._maintenance.write_queues()
        await leave(shop, how)
        shutil.rmtree(shop.root / "consumequeue")
        shop.open()
        assert [shop.bodies("T", q) for q in (0, 1)] == [want(queue_id=q) for q in (0, 1)]
        assert shop.bodies("U", 1) == want(9, "U", 1)

    tell(story)


@HOW
def test_one_missing_queue_is_built_again(tell, how):
    async def story(shop):
        shop.open()
        await fill(shop, 9, "U")
        await fill(shop)
        await shop.store._maintenance.write_queues()
        await leave(shop, how)
        shutil.rmtree(shop.root / "consumequeue" / "U" / "1")
        shop.open()
        if how == "stop":
            assert shop.bodies("U", 1) == want(9, "U", 1)
        await shop.put(b"new", "U", 1)
        await shop.stop()
        shop.open()
        assert shop.bodies("T", 1) == want(queue_id=1)

    tell(story)


def test_a_lost_checkpoint_makes_the_whole_log_be_read(tell):
    async def story(shop):
        shop.open()
        await fill(shop)
        await shop.crash()
        (shop.root / CHECKPOINT).unlink()
        shop.open()
        assert shop.bodies("T", 1) == want(queue_id=1)

    tell(story)


def test_a_checkpoint_written_by_java_counts_for_what_it_says_itself(tell):
    async def story(shop):
        shop.open()
        await fill(shop)
        await shop.crash()
        raw = bytearray((shop.root / CHECKPOINT).read_bytes())
        raw[:16] = Struct(">qq").pack(shop.clock.ms, shop.clock.ms)
        (shop.root / CHECKPOINT).write_bytes(raw)
        shop.open()
        assert shop.store._parts.checkpoint.dispatched == shop.store.max_phy_offset
        assert shop.bodies("T", 1) == want(queue_id=1)

    tell(story)


@pytest.mark.parametrize("lost", [1, 30, 100, 200])
@HOW
def test_a_torn_tail_is_cut_to_the_last_whole_record(tell, lost, how):
    async def story(shop):
        shop.open(commit_log_file_bytes=1 << 20)
        await fill(shop, 20, queues=1)
        end = shop.store.max_phy_offset
        await leave(shop, how)
        with shop.log_files()[0].open("r+b") as file:
            file.seek(end - lost)
            file.write(bytes(lost))
        shop.open()
        kept = 20 - (-(-lost // (end // 20)))
        assert shop.bodies() == want(queues=1)[:kept]
        assert (await shop.put(b"more")).queue_offset == kept
        await leave(shop, "crash")
        shop.open()
        assert shop.bodies() == [*want(queues=1)[:kept], b"more"]

    tell(story)


@HOW
def test_a_truncated_last_file_costs_its_end_only(tell, how):
    async def story(shop):
        shop.open()
        await fill(shop, 300, queues=1)
        await leave(shop, how)
        last = shop.log_files()[-1]
        with last.open("r+b") as file:
            file.truncate(500)
        shop.open()
        assert last.stat().st_size == 16384
        found = shop.bodies()
        assert found == want(300, queues=1)[: len(found)]
        assert len(found) > 200
        assert (await shop.put(b"more")).queue_offset == len(found)

    tell(story)


@pytest.mark.parametrize("size", [0, 16384])
@HOW
def test_a_last_file_of_zeros_or_nothing_is_no_damage(tell, size, how):
    async def story(shop):
        shop.open()
        await fill(shop, 300, queues=1)
        await leave(shop, how)
        following = shop.store._parts.mapped_files.end
        with (shop.root / "commitlog" / f"{following:020d}").open("wb") as file:
            file.truncate(size)
        shop.open()
        assert shop.bodies() == want(300, queues=1)
        await fill(shop, 300, "U", queues=1)
        assert shop.bodies("U") == want(300, "U", queues=1)

    tell(story)


def test_damage_in_an_old_file_keeps_the_files_after_it(tell):
    async def story(shop):
        shop.open(commit_log_file_bytes=4096)
        for number in range(100):
            shop.clock.ms += 5_000
            await shop.put(b"T %d" % number)
        await shop.stop()
        second = shop.log_files()[1]
        raw = bytearray(second.read_bytes())
        raw[1000:2000] = bytes(1000)
        second.write_bytes(raw)
        (shop.root / ABORT).write_bytes(b"1")
        shutil.rmtree(shop.root / "consumequeue")
        shop.open()
        found = shop.bodies()
        missing = [b for b in want(100, queues=1) if b not in found]
        assert 0 < len(missing) < 40
        assert found == [b for b in want(100, queues=1) if b in found]
        assert found[-1] == b"T 99"
        assert (await shop.put(b"more")).queue_offset == 100

    tell(story)


def test_a_changed_byte_in_the_tail_is_noticed_by_the_checksum(tell):
    async def story(shop):
        shop.open()
        placed = [await shop.put(bytes(50)) for _ in range(5)]
        await shop.crash()
        path = shop.log_files()[0]
        raw = bytearray(path.read_bytes())
        raw[placed[3].phy_offset + 36] ^= 4  # sysFlag: no body checksum covers it
        path.write_bytes(raw)
        shop.open()
        assert len(shop.bodies()) == 3

    tell(story)


def test_records_left_over_from_before_a_cut_do_not_come_back(tell):
    async def story(shop):
        shop.open()
        for number in range(10):
            await shop.put(b"old %d" % number)
        await shop.crash()
        path = shop.log_files()[0]
        raw = bytearray(path.read_bytes())
        size = int.from_bytes(raw[:4])
        raw[5 * size + 60] ^= 1
        path.write_bytes(raw)
        shop.open()
        for number in range(5, 7):
            await shop.put(b"new %d" % number)
        await shop.crash()
        shop.open()
        assert shop.bodies() == [b"old %d" % n for n in range(5)] + [b"new 5", b"new 6"]

    tell(story)


def test_garbage_beyond_the_end_of_a_queue_is_wiped(tell):
    async def story(shop):
        shop.open()
        await fill(shop, 5, queues=1)
        await shop.store._maintenance.write_queues()
        await shop.crash()
        path = shop.root / "consumequeue/T/0" / ("0" * 20)
        with path.open("r+b") as file:
            file.seek(5 * 20)
            file.write(b"\1" * 300)
        shop.open()
        assert shop.bodies() == want(5, queues=1)
        assert path.read_bytes()[100:] == bytes(300)

    tell(story)


def test_a_topic_deleted_and_made_again_starts_at_zero_and_stays_so(tell):
    async def story(shop):
        shop.open()
        await fill(shop, 7, queues=1)
        shop.store.delete_topic("T")
        assert shop.store.queues() == []
        shop.clock.ms += 1
        assert (await shop.put(b"second life")).queue_offset == 0
        await shop.crash()
        (shop.root / CHECKPOINT).unlink()
        shop.open()
        assert shop.bodies() == [b"second life"]
        assert (await shop.put()).queue_offset == 1

    tell(story)


def test_a_topic_deleted_under_messages_on_their_way_leaves_no_files(tell):
    async def story(shop):
        store = shop.open(flush_disk_type="SYNC_FLUSH")
        await fill(shop, 3, "U", queues=1)
        store.put(MessageDraft("T", 0, b"on its way"))
        await asyncio.sleep(0)
        store.delete_topic("T")
        await shop.wait_until_durable()
        await store._maintenance.write_queues()
        assert not (shop.root / "consumequeue" / "T").exists()
        assert store._parts.checkpoint.entries == 3
        await shop.crash()
        shop.open()
        assert shop.store.queues() == [("U", 0)]

    tell(story)


def test_a_deleted_topic_stays_deleted_over_a_crash(tell):
    async def story(shop):
        store = shop.open()
        await fill(shop, 7, queues=1)
        await fill(shop, 7, "U", queues=1)
        await store._maintenance.write_queues()
        store.delete_topic("T")
        await store._maintenance.write_queues()
        await shop.crash()
        shop.open()
        assert shop.store.queues() == [("U", 0)]
        assert (await shop.put()).queue_offset == 0

    tell(story)


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_crash_right_after_a_deletion_undoes_nothing_and_touches_no_other_topic(
    tell, caplog, is_made_again, is_left, has_checkpoint
):
    async def story(shop):
        store = shop.open()
        await fill(shop, 7)
        await fill(shop, 7, "U")
        await store._maintenance.write_queues()
        await fill(shop, 5)
        left = {
            path: path.read_bytes() for path in (shop.root / "consumequeue" / "T").rglob("000*")
        }
        store.delete_topic("T")
        if is_made_again:
            await shop.put(b"second life")
        await shop.crash()
        if is_left:  # the names of the queue's files had not reached the disk when it lost power
            for path in left:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(left[path])
        if not has_checkpoint:
            (shop.root / CHECKPOINT).unlink()
        caplog.clear()
        shop.open()
        assert {topic for topic, _ in shop.store.queues()} == {"U"} | (
            {"T"} if is_made_again else set()
        )
        assert shop.bodies("T") == ([b"second life"] if is_made_again else [])
        assert len([body for queue in range(2) for body in shop.bodies("U", queue)]) == 7

    tell(story)
    assert "anew" not in caplog.text or not has_checkpoint


def test_a_topic_deleted_while_the_checkpoint_moves_stays_deleted_over_a_crash(tell, caplog):
    async def story(shop):
        store = shop.open()
        await shop.put(b"old")
        await shop.put(b"stays", "U")
        await store._maintenance.write_queues()
        await shop.put(b"newer", "U")
        turn = asyncio.create_task(store._maintenance.checkpoint_queues())
        await asyncio.sleep(0)
        assert not turn.done()
        store.delete_topic("T")
        await turn
        assert store._parts.checkpoint.dispatched < store._parts.publisher.newest_visible.end, (
            "what it counted is gone"
        )
        await store._maintenance.write_queues()
        await shop.crash()
        caplog.clear()
        shop.open()
        assert shop.store.queues() == [("U", 0)]
        assert shop.bodies("U") == [b"stays", b"newer"]

    tell(story)
    assert "anew" not in caplog.text


def test_a_checkpoint_that_had_no_room_is_written_later(tell, shop):
    shop.root = Path("/store")
    shop.files = disk = SimFiles(Random(1), shop.clock)

    async def story(shop):
        store = shop.open()
        await shop.put(b"old")
        await shop.put(b"stays", "U")
        await store._maintenance.write_queues()
        disk.room = 0
        store.delete_topic("T")
        await store._maintenance.write_queues()
        disk.room = None
        shop.clock.ms += shop.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        await shop.crash()
        disk.kill()
        shop.open()
        assert shop.store.queues() == [("U", 0)]

    tell(story)


def test_files_deleted_at_the_head_leave_the_rest_and_the_offsets(tell):
    async def story(shop):
        shop.open(commit_log_file_bytes=4096)
        await fill(shop, 100, queues=1)
        await shop.stop()
        for path in shop.log_files()[:2]:
            path.unlink()
        shop.open()
        low = shop.store.min_offset("T", 0)
        assert low > 0
        assert shop.bodies() == want(100, queues=1)[low:]
        await shop.stop()
        shutil.rmtree(shop.root / "consumequeue")
        shop.open()
        assert shop.store.min_offset("T", 0) == low
        assert shop.bodies() == want(100, queues=1)[low:]

    tell(story)


def test_sync_flush_keeps_acknowledged_messages_over_a_crash(tell):
    async def story(shop):
        shop.open(flush_disk_type="SYNC_FLUSH")
        await fill(shop)
        await shop.crash()
        shop.open()
        assert shop.bodies("T", 1) == want(queue_id=1)

    tell(story)


def test_a_store_written_without_checksums_opens_with_them_and_back(tell):
    async def story(shop):
        shop.open(append_crc=False)
        await shop.put(b"without")
        assert stored.decode(shop.store.record_at(0)).properties == b"TAGS\x01a\x02"
        await shop.crash()
        shop.open(append_crc=True)
        await shop.put(b"with")
        await shop.crash()
        shop.open(append_crc=False)
        assert shop.bodies() == [b"without", b"with"]

    tell(story)


def test_a_recovered_store_is_not_read_again_by_the_next_start(tell):
    async def story(shop):
        shop.open()
        await fill(shop)
        await shop.crash()
        shop.open()
        await shop.crash()
        shop.open()
        assert shop.store._parts.checkpoint.dispatched == shop.store.max_phy_offset

    tell(story)


def test_unqueued_records_at_the_end_survive_a_clean_stop(tell):
    async def story(shop):
        store = shop.open()
        await shop.put(b"seen")
        half = store.put(MessageDraft("H", 0, b"half", sys_flag=4))
        assert await shop.wait_until_durable() is PutStatus.PUT_OK
        await shop.stop()
        store = shop.open()
        assert stored.decode(store.record_at(half.phy_offset)).body == b"half"
        assert (await shop.put(b"next")).phy_offset == half.phy_offset + half.size

    tell(story)


def test_stopping_twice_and_stopping_under_load_is_fine(tell):
    async def story(shop):
        store = shop.open(flush_disk_type="SYNC_FLUSH")
        await store.start()
        answers = []
        for _ in range(10):
            store.put(MessageDraft("T", 0, b"x"))
            store.on_durable(answers.append)
        await store.stop()
        await store.stop()
        assert answers == [PutStatus.PUT_OK] * 10
        await asyncio.sleep(0)
        shop.open()
        assert len(shop.bodies()) == 10

    tell(story)
