"""Recovery makes a store whole after stops of every kind and after damage to its files."""

import asyncio
import shutil
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from cometmq.errors import StoreCorrupt
from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.store.recovery.recovery import Recovery
from cometmq.testing.sim_files import SimFiles
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import ENTRY

ABORT, CHECKPOINT = "abort", "checkpoint"


async def fill(harness, count=60, topic="T", queues=2):
    for number in range(count):
        await harness.put(b"%s %d" % (topic.encode(), number), topic, number % queues)


def want(count=60, topic="T", queue_id=0, queues=2):
    return [b"%s %d" % (topic.encode(), n) for n in range(queue_id, count, queues)]


async def leave(harness, how):
    if how == "stop":
        await harness.stop()
    else:
        await harness.crash()


HOW = pytest.mark.parametrize("how", ["stop", "crash"])


@HOW
def test_everything_is_there_again_after_a_stop_and_after_a_crash(run_scenario, how):
    async def scenario(harness):
        harness.open()
        await fill(harness)
        await leave(harness, how)
        assert (harness.root / ABORT).exists() is (how == "crash")
        harness.open()
        assert [harness.bodies("T", q) for q in (0, 1)] == [want(queue_id=q) for q in (0, 1)]
        assert (await harness.put(b"more")).queue_offset == 30

    run_scenario(scenario)


def test_an_empty_store_opens_again(run_scenario):
    async def scenario(harness):
        for how in ("stop", "stop", "crash", "crash", "stop"):
            harness.open()
            assert harness.store.queues() == []
            await leave(harness, how)

    run_scenario(scenario)


@HOW
def test_missing_queues_are_built_again_from_the_log(run_scenario, how):
    async def scenario(harness):
        harness.open()
        await fill(harness)
        await fill(harness, 9, "U")
        await harness.store._maintenance.write_queues()
        await leave(harness, how)
        shutil.rmtree(harness.root / "consumequeue")
        harness.open()
        assert [harness.bodies("T", q) for q in (0, 1)] == [want(queue_id=q) for q in (0, 1)]
        assert harness.bodies("U", 1) == want(9, "U", 1)

    run_scenario(scenario)


@HOW
def test_one_missing_queue_is_built_again(run_scenario, how):
    async def scenario(harness):
        harness.open()
        await fill(harness, 9, "U")
        await fill(harness)
        await harness.store._maintenance.write_queues()
        await leave(harness, how)
        shutil.rmtree(harness.root / "consumequeue" / "U" / "1")
        harness.open()
        if how == "stop":
            assert harness.bodies("U", 1) == want(9, "U", 1)
        await harness.put(b"new", "U", 1)
        await harness.stop()
        harness.open()
        assert harness.bodies("T", 1) == want(queue_id=1)

    run_scenario(scenario)


def test_a_lost_checkpoint_makes_the_whole_log_be_read(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness)
        await harness.crash()
        (harness.root / CHECKPOINT).unlink()
        harness.open()
        assert harness.bodies("T", 1) == want(queue_id=1)

    run_scenario(scenario)


def test_a_checkpoint_written_by_java_counts_for_what_it_says_itself(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness)
        await harness.crash()
        raw = bytearray((harness.root / CHECKPOINT).read_bytes())
        raw[:16] = Struct(">qq").pack(harness.clock.ms, harness.clock.ms)
        (harness.root / CHECKPOINT).write_bytes(raw)
        harness.open()
        assert harness.store._parts.checkpoint.dispatched == harness.store.max_phy_offset
        assert harness.bodies("T", 1) == want(queue_id=1)

    run_scenario(scenario)


def test_after_a_clean_stop_of_another_broker_only_what_is_behind_the_queues_is_read(
    run_scenario, monkeypatch
):
    results = []
    run = Recovery.run
    monkeypatch.setattr(Recovery, "run", lambda self: results.append(run(self)) or results[-1])

    async def scenario(harness):
        harness.open()
        await fill(harness)
        half = harness.store.put(MessageDraft("H", 0, b"half", sys_flag=4))
        await harness.stop()
        raw = bytearray((harness.root / CHECKPOINT).read_bytes())
        raw[:16] = Struct(">qq").pack(1, 1)  # times so old that by them all would be read
        (harness.root / CHECKPOINT).write_bytes(raw)
        harness.open()
        assert (results[-1].records, results[-1].last.phy_offset) == (1, half.phy_offset)
        assert harness.bodies("T", 1) == want(queue_id=1)

    run_scenario(scenario)


def machine_went_down(harness):
    """As if the machine had gone down after the crash: writes may be missing."""
    (harness.root / ABORT).write_bytes(b"1\nanother boot\n")


@pytest.mark.parametrize("lost", [1, 30, 100, 200])
def test_a_torn_tail_is_cut_to_the_last_whole_record(run_scenario, lost):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=1 << 20)
        await fill(harness, 20, queues=1)
        end = harness.store.max_phy_offset
        await harness.crash()
        with harness.log_files()[0].open("r+b") as file:
            file.seek(end - lost)
            file.write(bytes(lost))
        harness.open()
        kept = 20 - (-(-lost // (end // 20)))
        assert harness.bodies() == want(queues=1)[:kept]
        assert (await harness.put(b"more")).queue_offset == kept
        await leave(harness, "crash")
        harness.open()
        assert harness.bodies() == [*want(queues=1)[:kept], b"more"]

    run_scenario(scenario)


def test_a_truncated_last_file_costs_its_end_only(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness, 300, queues=1)
        await harness.crash()
        last = harness.log_files()[-1]
        with last.open("r+b") as file:
            file.truncate(500)
        harness.open()
        assert last.stat().st_size == 16384
        found = harness.bodies()
        assert found == want(300, queues=1)[: len(found)]
        assert len(found) > 200
        assert (await harness.put(b"more")).queue_offset == len(found)

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["zeros", "cut", "no file"])
def test_a_log_shorter_than_it_was_at_the_stop_is_refused_and_not_changed(run_scenario, how):
    async def scenario(harness):
        harness.open()
        await fill(harness, 300, queues=1)
        end = harness.store.max_phy_offset
        await harness.stop()
        last = harness.log_files()[-1]
        with last.open("r+b") as file:
            if how == "cut":
                file.truncate(500)
            file.seek(end % 16384 - 100)
            file.write(bytes(60))
        if how == "no file":
            last.unlink()
        before = {path: path.read_bytes().rstrip(b"\0") for path in harness.log_files()}
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"T queue 0 offset \d+.*accept-loss"):
                harness.open()
        assert before == {p: p.read_bytes().rstrip(b"\0") for p in harness.log_files()}

    run_scenario(scenario)


@pytest.mark.parametrize("size", [0, 16384])
@HOW
def test_a_last_file_of_zeros_or_nothing_is_no_damage(run_scenario, size, how):
    async def scenario(harness):
        harness.open()
        await fill(harness, 300, queues=1)
        await leave(harness, how)
        following = harness.store._parts.mapped_files.end
        with (harness.root / "commitlog" / f"{following:020d}").open("wb") as file:
            file.truncate(size)
        harness.open()
        assert harness.bodies() == want(300, queues=1)
        await fill(harness, 300, "U", queues=1)
        assert harness.bodies("U") == want(300, "U", queues=1)

    run_scenario(scenario)


def test_damage_in_an_old_file_keeps_the_files_after_it(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        for number in range(100):
            harness.clock.ms += 5_000
            await harness.put(b"T %d" % number)
        await harness.stop()
        second = harness.log_files()[1]
        raw = bytearray(second.read_bytes())
        raw[1000:2000] = bytes(1000)
        second.write_bytes(raw)
        (harness.root / ABORT).write_bytes(b"1")
        shutil.rmtree(harness.root / "consumequeue")
        harness.open()
        found = harness.bodies()
        missing = [b for b in want(100, queues=1) if b not in found]
        assert 0 < len(missing) < 40
        assert found == [b for b in want(100, queues=1) if b in found]
        assert found[-1] == b"T 99"
        assert (await harness.put(b"more")).queue_offset == 100

    run_scenario(scenario)


def test_a_changed_byte_in_the_tail_is_noticed_by_the_checksum(run_scenario):
    async def scenario(harness):
        harness.open()
        placed = [await harness.put(bytes(50)) for _ in range(5)]
        await harness.crash()
        path = harness.log_files()[0]
        raw = bytearray(path.read_bytes())
        raw[placed[3].phy_offset + 36] ^= 4  # sysFlag: no body checksum covers it
        path.write_bytes(raw)
        harness.open()
        assert len(harness.bodies()) == 4
        assert harness.store.max_offset("T", 0) == 5

    run_scenario(scenario)


def test_the_first_gap_ends_the_log_where_the_machine_went_down(run_scenario):
    async def scenario(harness):
        harness.open()
        placed = [await harness.put(bytes(50)) for _ in range(5)]
        await harness.crash()
        machine_went_down(harness)
        with harness.log_files()[0].open("r+b") as file:
            file.seek(placed[3].phy_offset)
            file.write(bytes(40))
        harness.open()
        assert len(harness.bodies()) == harness.store.max_offset("T", 0) == 3

    run_scenario(scenario)


def test_records_left_over_from_before_a_cut_do_not_come_back(run_scenario):
    async def scenario(harness):
        harness.open()
        for number in range(10):
            await harness.put(b"old %d" % number)
        await harness.crash()
        path = harness.log_files()[0]
        raw = bytearray(path.read_bytes())
        size = int.from_bytes(raw[:4])
        raw[5 * size + 60] ^= 1
        path.write_bytes(raw)
        machine_went_down(harness)
        harness.open()
        for number in range(5, 7):
            await harness.put(b"new %d" % number)
        await harness.crash()
        harness.open()
        assert harness.bodies() == [b"old %d" % n for n in range(5)] + [b"new 5", b"new 6"]

    run_scenario(scenario)


def test_garbage_beyond_the_end_of_a_queue_is_wiped(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness, 5, queues=1)
        await harness.store._maintenance.write_queues()
        await harness.crash()
        path = harness.root / "consumequeue/T/0" / ("0" * 20)
        with path.open("r+b") as file:
            file.seek(5 * 20)
            file.write(b"\1" * 300)
        harness.open()
        assert harness.bodies() == want(5, queues=1)
        assert path.read_bytes()[100:] == bytes(300)

    run_scenario(scenario)


def test_an_entry_whose_record_a_power_cut_took_does_not_come_back_when_the_log_grows(run_scenario):
    """Queue files may reach the disk before the log; another record lies there later."""

    async def scenario(harness):
        harness.open()
        await fill(harness, queues=1)
        await harness.store._maintenance.checkpoint_queues()
        end = harness.store.max_phy_offset
        await fill(harness, queues=1)
        await harness.crash()
        machine_went_down(harness)
        path = harness.root / "consumequeue" / "T" / "1" / f"{0:020d}"
        path.parent.mkdir()
        path.write_bytes(ENTRY.pack(end + 10, 200, 0).ljust(400, b"\0"))
        harness.open()
        assert harness.store.max_offset("T", 1) == 0
        assert (await harness.put(queue_id=1)).queue_offset == 0
        assert len(harness.bodies(queue_id=1)) == 1

    run_scenario(scenario)


def test_a_topic_deleted_and_made_again_starts_at_zero_and_stays_so(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness, 7, queues=1)
        harness.store.delete_topic("T")
        assert harness.store.queues() == []
        harness.clock.ms += 1
        assert (await harness.put(b"second life")).queue_offset == 0
        await harness.crash()
        (harness.root / CHECKPOINT).unlink()
        harness.open()
        assert harness.bodies() == [b"second life"]
        assert (await harness.put()).queue_offset == 1

    run_scenario(scenario)


def test_a_topic_deleted_under_messages_on_their_way_leaves_no_files(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        await fill(harness, 3, "U", queues=1)
        store.put(MessageDraft("T", 0, b"on its way"))
        await asyncio.sleep(0)
        store.delete_topic("T")
        await harness.wait_until_durable()
        await store._maintenance.write_queues()
        assert not (harness.root / "consumequeue" / "T").exists()
        assert store._parts.checkpoint.entries == 3
        await harness.crash()
        harness.open()
        assert harness.store.queues() == [("U", 0)]

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_an_entry_without_its_record_does_not_come_back_with_a_second_power_cut(
    run_scenario, harness, seed
):
    """A start after a clean stop takes entries for what the log had held, and would refuse."""
    disk = harness.files = SimFiles(Random(seed), harness.clock)
    harness.root = Path("/store")

    async def scenario(harness):
        store = harness.open()
        await harness.put(b"kept")
        await store._maintenance.checkpoint_queues()
        end = store.max_phy_offset
        await harness.put(b"taken by the power cut")
        store._queues.write_all_pending()
        store._queues.flush_all()
        await harness.crash()
        log = disk.open(harness.root / "commitlog" / f"{0:020d}", 0)
        log.write(end, bytes(store.max_phy_offset - end))
        log.sync()
        for _ in range(2):
            disk.power_cut()
            harness.open()
            assert harness.bodies() == [b"kept"]
            await harness.stop()

    run_scenario(scenario)


def test_a_deleted_topic_stays_deleted_over_a_crash(run_scenario):
    async def scenario(harness):
        store = harness.open()
        await fill(harness, 7, queues=1)
        await fill(harness, 7, "U", queues=1)
        await store._maintenance.write_queues()
        store.delete_topic("T")
        await store._maintenance.write_queues()
        await harness.crash()
        harness.open()
        assert harness.store.queues() == [("U", 0)]
        assert (await harness.put()).queue_offset == 0

    run_scenario(scenario)


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_crash_right_after_a_deletion_undoes_nothing_and_touches_no_other_topic(
    run_scenario, caplog, is_made_again, is_left, has_checkpoint
):
    async def scenario(harness):
        store = harness.open()
        await fill(harness, 7)
        await fill(harness, 7, "U")
        await store._maintenance.write_queues()
        await fill(harness, 5)
        left = {
            path: path.read_bytes() for path in (harness.root / "consumequeue" / "T").rglob("000*")
        }
        store.delete_topic("T")
        if is_made_again:
            await harness.put(b"second life")
        await harness.crash()
        if is_left:  # the names of the queue's files had not reached the disk when it lost power
            for path in left:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(left[path])
        if not has_checkpoint:
            (harness.root / CHECKPOINT).unlink()
        caplog.clear()
        harness.open()
        assert {topic for topic, _ in harness.store.queues()} == {"U"} | (
            {"T"} if is_made_again else set()
        )
        assert harness.bodies("T") == ([b"second life"] if is_made_again else [])
        assert len([body for queue in range(2) for body in harness.bodies("U", queue)]) == 7

    run_scenario(scenario)
    assert "anew" not in caplog.text or not has_checkpoint


def test_a_topic_deleted_while_the_checkpoint_moves_stays_deleted_over_a_crash(
    run_scenario, caplog
):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"old")
        await harness.put(b"stays", "U")
        await store._maintenance.write_queues()
        await harness.put(b"newer", "U")
        job = asyncio.create_task(store._maintenance.checkpoint_queues())
        await asyncio.sleep(0)
        assert not job.done()
        store.delete_topic("T")
        await job
        assert store._parts.checkpoint.dispatched < store._parts.publisher.newest_visible.end, (
            "what it counted is gone"
        )
        await store._maintenance.write_queues()
        await harness.crash()
        caplog.clear()
        harness.open()
        assert harness.store.queues() == [("U", 0)]
        assert harness.bodies("U") == [b"stays", b"newer"]

    run_scenario(scenario)
    assert "anew" not in caplog.text


@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_start_after_a_deletion_builds_no_queue_anew(run_scenario, caplog, how, rounds):
    """Nothing is put after the deletion, so the checkpoint stays where it was."""

    async def scenario(harness):
        store = harness.open()
        for topic in ("T", "U", "V"):
            await fill(harness, 10, topic)
        await store._maintenance.write_queues()
        for topic in ("T", "U"):
            store.delete_topic(topic)
            for _ in range(rounds):
                await store._maintenance.write_queues()
        await leave(harness, how)
        for _ in range(2):
            store = harness.open()
            assert {topic for topic, _ in store.queues()} == {"V"}
            assert len([*harness.bodies("V"), *harness.bodies("V", 1)]) == 10
            await harness.stop()

    run_scenario(scenario)
    assert "anew" not in caplog.text


def test_a_deletion_leaves_no_folder(run_scenario):
    async def scenario(harness):
        store = harness.open()
        await fill(harness, 4)
        await fill(harness, 4, "U")
        await store._maintenance.write_queues()
        store.delete_topic("T")
        queues = harness.root / "consumequeue"
        assert [path.name for path in queues.iterdir()] == ["U"]
        await harness.stop()
        (queues / "T" / "0").mkdir(parents=True)
        (queues / "X").mkdir()
        harness.open()
        assert [path.name for path in queues.iterdir()] == ["U"]
        assert sorted(harness.store.queues()) == [("U", 0), ("U", 1)]

    run_scenario(scenario)


def test_a_checkpoint_that_had_no_room_is_written_later(run_scenario, harness):
    harness.root = Path("/store")
    harness.files = disk = SimFiles(Random(1), harness.clock)

    async def scenario(harness):
        store = harness.open()
        await harness.put(b"old")
        await harness.put(b"stays", "U")
        await store._maintenance.write_queues()
        disk.room = 0
        store.delete_topic("T")
        await store._maintenance.write_queues()
        disk.room = None
        harness.clock.ms += harness.settings.flush_consume_queue_thorough_interval_ms
        await store._maintenance.write_queues()
        await harness.crash()
        disk.kill()
        harness.open()
        assert harness.store.queues() == [("U", 0)]

    run_scenario(scenario)


def test_files_deleted_at_the_head_leave_the_rest_and_the_offsets(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        await fill(harness, 100, queues=1)
        await harness.stop()
        for path in harness.log_files()[:2]:
            path.unlink()
        harness.open()
        low = harness.store.min_offset("T", 0)
        assert low > 0
        assert harness.bodies() == want(100, queues=1)[low:]
        await harness.stop()
        shutil.rmtree(harness.root / "consumequeue")
        harness.open()
        assert harness.store.min_offset("T", 0) == low
        assert harness.bodies() == want(100, queues=1)[low:]

    run_scenario(scenario)


def test_sync_flush_keeps_acknowledged_messages_over_a_crash(run_scenario):
    async def scenario(harness):
        harness.open(flush_disk_type="SYNC_FLUSH")
        await fill(harness)
        await harness.crash()
        harness.open()
        assert harness.bodies("T", 1) == want(queue_id=1)

    run_scenario(scenario)


def test_a_store_written_without_checksums_opens_with_them_and_back(run_scenario):
    async def scenario(harness):
        harness.open(append_crc=False)
        await harness.put(b"without")
        assert stored.decode(harness.store.record_at(0)).properties == b"TAGS\x01a\x02"
        await harness.crash()
        harness.open(append_crc=True)
        await harness.put(b"with")
        await harness.crash()
        harness.open(append_crc=False)
        assert harness.bodies() == [b"without", b"with"]

    run_scenario(scenario)


@pytest.mark.parametrize("nuls", [1, 19, 40])
def test_nuls_at_the_end_of_properties_cut_off_nothing_behind_them(run_scenario, nuls):
    async def scenario(harness):
        harness.open(append_crc=False)
        await harness.put(b"before")
        raw = b"TAGS\x01a\x02key\x01" + bytes(nuls)
        harness.store.put(MessageDraft("T", 0, b"with NULs", raw, born_ms=1))
        await harness.put(b"after")
        (harness.root / CHECKPOINT).unlink()
        await harness.crash()
        harness.open(append_crc=False)
        assert harness.bodies() == [b"before", b"with NULs", b"after"]

    run_scenario(scenario)


@pytest.mark.parametrize("nuls", [1, 19])
def test_nuls_at_the_end_of_the_last_properties_are_no_torn_write(run_scenario, nuls):
    async def scenario(harness):
        harness.open(append_crc=False)
        raw = b"TAGS\x01a\x02key\x01" + bytes(nuls)
        harness.store.put(MessageDraft("T", 0, b"with NULs", raw, born_ms=1))
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        await harness.crash()
        harness.open(append_crc=False)
        assert harness.bodies() == [b"with NULs"]

    run_scenario(scenario)


@pytest.mark.parametrize("lost", range(1, 21))
def test_a_write_torn_within_the_checksum_of_a_record_is_cut(run_scenario, lost):
    async def scenario(harness):
        harness.open()
        await fill(harness, 3, queues=1)
        end = harness.store.max_phy_offset
        await harness.crash()
        with harness.log_files()[-1].open("r+b") as file:
            file.seek(end % harness.store._log.file_bytes - lost)
            file.write(bytes(lost))
        harness.open()
        assert harness.bodies() == want(2, queues=1)

    run_scenario(scenario)


def test_a_recovered_store_is_not_read_again_by_the_next_start(run_scenario):
    async def scenario(harness):
        harness.open()
        await fill(harness)
        await harness.crash()
        harness.open()
        await harness.crash()
        harness.open()
        assert harness.store._parts.checkpoint.dispatched == harness.store.max_phy_offset

    run_scenario(scenario)


def test_unqueued_records_at_the_end_survive_a_clean_stop(run_scenario):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"seen")
        half = store.put(MessageDraft("H", 0, b"half", sys_flag=4))
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        await harness.stop()
        store = harness.open()
        assert stored.decode(store.record_at(half.phy_offset)).body == b"half"
        assert (await harness.put(b"next")).phy_offset == half.phy_offset + half.size

    run_scenario(scenario)


def test_stopping_twice_and_stopping_under_load_is_fine(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        await store.start()
        answers = []
        for _ in range(10):
            store.put(MessageDraft("T", 0, b"x"))
            store.on_durable(answers.append)
        await store.stop()
        await store.stop()
        assert answers == [PutStatus.PUT_OK] * 10
        await asyncio.sleep(0)
        harness.open()
        assert len(harness.bodies()) == 10

    run_scenario(scenario)
