"""Messages that were put are found, with RocketMQ's statuses and limits."""

import asyncio

import pytest

from cometmq.settings.store import StoreSettings
from cometmq.store.message_store import GetStatus, MessageDraft, PutStatus
from cometmq.wire.records import log_record as stored

A, B = ord("a"), ord("b")


def draft(body=b"x", tag=b"a", queue_id=0, **more):
    return MessageDraft("T", queue_id, body, b"TAGS\x01%s\x02" % tag, **more)


def test_a_message_comes_back_with_all_its_fields(run_scenario):
    async def scenario(harness):
        store = harness.open()
        born = bytes((10, 0, 0, 1, 0, 0, 19, 136))
        placed = store.put(
            MessageDraft(
                "T",
                3,
                b"hello",
                b"K\x01v\x02",
                flag=9,
                sys_flag=1,
                born_ms=17,
                born_host=born,
                reconsume_times=2,
                prepared_offset=5,
            )
        )
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        record = stored.decode(store.record_at(placed.phy_offset))
        assert (record.body, record.topic, record.queue_id, record.flag) == (b"hello", "T", 3, 9)
        assert (record.sys_flag, record.born_ms, record.born_host) == (1, 17, born)
        assert (record.reconsume_times, record.prepared_offset) == (2, 5)
        assert (record.store_ms, record.queue_offset) == (placed.store_ms, 0)
        assert stored.text_properties(record) == {"K": "v"}
        assert stored.is_whole(record, store.record_at(placed.phy_offset))

    run_scenario(scenario)


def test_ipv6_hosts_set_their_bit_and_the_store_host_too(run_scenario):
    async def scenario(harness):
        store = harness.open()
        placed = store.put(draft(born_host=bytes(20)))
        await harness.wait_until_durable()
        record = stored.decode(store.record_at(placed.phy_offset))
        assert record.sys_flag == 0x10
        assert store.store_time("T", 0, 0) == record.store_ms

    run_scenario(scenario)


def test_nothing_is_seen_before_it_is_written(run_scenario):
    async def scenario(harness):
        store = harness.open()
        arrived = []
        store.on_arrival = lambda *what: arrived.append(what)
        placed = store.put(draft())
        assert store.max_offset("T", 0) == 0
        assert store.record_at(placed.phy_offset) is None
        assert not arrived
        await harness.wait_until_durable()
        assert store.max_offset("T", 0) == 1
        assert arrived == [("T", 0, 1, A)]

    run_scenario(scenario)


def test_under_sync_flush_nothing_is_seen_before_it_is_on_disk(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        placed, seen = store.put(draft()), []
        store.on_durable(lambda status: seen.append((status, store.max_offset("T", 0))))
        await asyncio.sleep(0)
        assert store._log.written > 0
        if not seen:  # the flush is still under way
            assert store.max_offset("T", 0) == 0
            assert store.record_at(placed.phy_offset) is None
        await harness.wait_until_durable()
        assert seen == [(PutStatus.PUT_OK, 1)]
        assert store.record_at(placed.phy_offset)

    run_scenario(scenario)


def test_all_puts_of_a_loop_iteration_share_one_write_and_one_flush(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        flushes = []
        submit = store._parts.flush_worker.submit
        store._parts.flush_worker.submit = lambda job, done: (flushes.append(1), submit(job, done))
        answers = []
        for _ in range(20):
            store.put(draft())
            store.on_durable(answers.append)
        while len(answers) < 20:
            await asyncio.sleep(0.001)
        assert flushes == [1]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (0, GetStatus.FOUND, 5),
        (4, GetStatus.FOUND, 5),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_an_offset_outside_the_queue_gets_its_status_and_where_to_go(
    run_scenario, offset, status, following
):
    async def scenario(harness):
        store = harness.open()
        for _ in range(5):
            await harness.put()
        got = store.get("T", 0, offset, 32, 1 << 20)
        assert (got.status, got.next_offset) == (status, following)
        assert (got.min_offset, got.max_offset) == (0, 5)

    run_scenario(scenario)


def test_a_queue_never_used_has_no_message(run_scenario):
    async def scenario(harness):
        got = harness.open().get("T", 9, 4, 32, 1 << 20)
        assert (got.status, got.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert harness.store.queues() == []

    run_scenario(scenario)


def test_a_filter_sees_tags_codes_and_skips_what_does_not_match(run_scenario):
    async def scenario(harness):
        store = harness.open()
        for tag in b"abbab":
            store.put(draft(bytes((tag,)), bytes((tag,))))
        await harness.wait_until_durable()
        got = store.get("T", 0, 0, 32, 1 << 20, lambda code: code == B)
        assert [r.body for r in stored.iterate(got.body)] == [b"b", b"b", b"b"]
        assert (got.next_offset, got.count) == (5, 3)
        none = store.get("T", 0, 1, 32, 1 << 20, lambda code: False)
        assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)

    run_scenario(scenario)


def test_a_pull_looks_at_so_many_entries_and_no_more(run_scenario):
    async def scenario(harness):
        store = harness.open(consume_queue_file_bytes=20_000, commit_log_file_bytes=1 << 20)
        for _ in range(900):
            store.put(draft(b"", b"a"))
        store.put(draft(b"", b"b"))
        await harness.wait_until_durable()
        first = store.get("T", 0, 0, 32, 1 << 20, lambda code: code == B)
        assert (first.status, first.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
        second = store.get("T", 0, 800, 32, 1 << 20, lambda code: code == B)
        assert (second.status, second.next_offset, second.count) == (GetStatus.FOUND, 901, 1)

    run_scenario(scenario)


def test_fresh_messages_come_32_at_a_time_and_old_ones_8(run_scenario):
    async def scenario(harness):
        store = harness.open(commit_log_file_bytes=1 << 20)
        for _ in range(100):
            store.put(draft(bytes(100)))
        await harness.wait_until_durable()
        assert store.get("T", 0, 0, 100, 1 << 20).count == 32
        assert store.get("T", 0, 0, 10, 1 << 20).count == 10
        store._queue_reader._fresh_bytes = 1_000
        assert store.get("T", 0, 0, 32, 1 << 20).count == 8

    run_scenario(scenario)


def test_one_pull_brings_messages_whose_entries_are_written_and_those_that_wait(run_scenario):
    async def scenario(harness):
        store = harness.open()
        for number in range(3):
            await harness.put(b"%d" % number)
        store._queues.write_all_pending()
        for number in range(3, 7):
            await harness.put(b"%d" % number)
        for match in (None, lambda _code: True):
            got = store.get("T", 0, 1, 32, 1 << 20, match)
            assert (got.count, got.next_offset) == (6, 7)
        assert store.get("T", 0, 1, 3, 1 << 20).next_offset == 4
        assert store.get("T", 0, 0, 3, 1 << 20).next_offset == 3

    run_scenario(scenario)


def test_bytes_are_limited_but_the_first_message_always_comes(run_scenario):
    async def scenario(harness):
        store = harness.open(commit_log_file_bytes=4 << 20)
        for size in (400_000, 100_000, 100_000, 100_000):
            store.put(draft(bytes(size)))
        await harness.wait_until_durable()
        assert store.get("T", 0, 0, 32, 10).count == 1
        assert store.get("T", 0, 1, 32, 1 << 30).count == 2  # 256 KiB and no more
        store._queue_reader._fresh_bytes = 0
        assert store.get("T", 0, 1, 32, 1 << 30).count == 1

    run_scenario(scenario)


def test_messages_of_several_queues_come_back_unmixed(run_scenario):
    async def scenario(harness):
        store = harness.open(commit_log_file_bytes=1 << 20)
        for number in range(60):
            store.put(draft(b"%d" % number, queue_id=number % 3))
        await harness.wait_until_durable()
        for queue_id in range(3):
            want = [b"%d" % n for n in range(queue_id, 60, 3)]
            assert harness.bodies("T", queue_id) == want

    run_scenario(scenario)


def test_a_record_never_lies_across_two_files(run_scenario):
    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        sizes = [5, 900, 17, 3000, 1, 3970 - 116]
        for round_ in range(4):
            for size in sizes:
                await harness.put(bytes([round_]) * size)
        assert harness.bodies() == [bytes([r]) * size for r in range(4) for size in sizes]
        for path in harness.log_files()[:-1]:
            raw, at = path.read_bytes(), 0
            while int.from_bytes(raw[at + 4 : at + 8]) != stored.MAGIC_BLANK:
                at += int.from_bytes(raw[at : at + 4])
            assert int.from_bytes(raw[at : at + 4]) == 4096 - at >= 8

    run_scenario(scenario)


def test_a_batch_lies_side_by_side_in_one_file_or_nowhere(run_scenario):
    async def scenario(harness):
        store = harness.open(commit_log_file_bytes=4096)
        await harness.put(bytes(2000))
        placed = store.put_batch([draft(bytes(700)) for _ in range(3)])
        assert [p.queue_offset for p in placed] == [1, 2, 3]
        assert placed[0].phy_offset == 4096
        assert placed[2].phy_offset == 4096 + 2 * placed[0].size
        too_much = store.put_batch([draft(bytes(1500)) for _ in range(3)])
        assert {p.status for p in too_much} == {PutStatus.MESSAGE_ILLEGAL}
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        assert len(harness.bodies()) == 4

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (MessageDraft("T", 0, bytes(1001)), PutStatus.MESSAGE_ILLEGAL),
        (MessageDraft("", 0, b"x"), PutStatus.MESSAGE_ILLEGAL),
        (MessageDraft("t" * 128, 0, b"x"), PutStatus.MESSAGE_ILLEGAL),
        (MessageDraft("%RETRY%" + "t" * 249, 0, b"x"), PutStatus.MESSAGE_ILLEGAL),
        (MessageDraft("T", 0, b"x", b"k\x01" + b"v" * 32746), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_what_no_record_can_hold_is_refused_and_leaves_no_trace(run_scenario, bad, status):
    async def scenario(harness):
        store = harness.open(max_message_bytes=1000)
        placed = store.put(bad)
        assert (placed.status, placed.phy_offset, placed.queue_offset) == (status, -1, -1)
        assert (await harness.put()).queue_offset == 0

    run_scenario(scenario)


def test_a_long_retry_topic_makes_a_record_of_version_2(run_scenario):
    async def scenario(harness):
        store = harness.open()
        topic = "%RETRY%" + "g" * 200
        placed = store.put(MessageDraft(topic, 0, b"x"))
        await harness.wait_until_durable()
        record = stored.decode(store.record_at(placed.phy_offset))
        assert (record.magic, record.topic) == (stored.MAGIC_V2, topic)
        assert harness.bodies(topic) == [b"x"]

    run_scenario(scenario)


def test_a_checksum_that_a_client_sent_is_replaced_by_ours(run_scenario):
    async def scenario(harness):
        store = harness.open()
        placed = store.put(
            MessageDraft("T", 0, b"x", b"a\x01b\x02__CRC32#\x010000000000\x02c\x01d")
        )
        await harness.wait_until_durable()
        raw = store.record_at(placed.phy_offset)
        record = stored.decode(raw)
        assert record.properties.count(b"__CRC32#") == 1
        assert stored.is_whole(record, raw)
        assert stored.text_properties(record) == {"a": "b", "c": "d"}

    run_scenario(scenario)


def test_half_and_rolled_back_messages_are_in_the_log_and_in_no_queue(run_scenario):
    async def scenario(harness):
        store = harness.open()
        for sys_flag in (0, 4, 8, 12):
            store.put(draft(b"%d" % sys_flag, sys_flag=sys_flag))
        await harness.wait_until_durable()
        assert harness.bodies() == [b"0", b"8"]

    run_scenario(scenario)


def test_store_times_never_go_back(run_scenario):
    async def scenario(harness):
        harness.open()
        times = []
        start_ms = harness.clock.ms
        for passed_ms, step_ms in ((1000, 0), (4000, -2000), (1000, 5000), (1000, 0)):
            harness.clock.ms += passed_ms
            harness.clock.step(step_ms)
            times.append((await harness.put()).store_ms - start_ms)
        assert times == [1000, 5000, 6000, 7000]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("ms", "lower", "upper"),
    [(0, 0, 0), (1000, 0, 0), (1500, 1, 0), (2000, 1, 3), (2500, 4, 3), (3000, 4, 4), (9000, 5, 4)],
)
def test_offsets_are_found_by_time(run_scenario, ms, lower, upper):
    async def scenario(harness):
        harness.clock.ms = 0
        store = harness.open()
        for time in (1000, 2000, 2000, 2000, 3000):
            harness.clock.ms = time
            await harness.put()
        await store._maintenance.write_queues()
        assert store.offset_by_time("T", 0, ms) == lower
        assert store.offset_by_time("T", 0, ms, upper=True) == upper

    run_scenario(scenario)


def test_record_at_refuses_what_is_no_beginning_of_a_record(run_scenario):
    async def scenario(harness):
        store = harness.open()
        placed = await harness.put(bytes(200))
        for phy_offset in (-1, 1, 8, placed.size - 1, placed.size, 1 << 40):
            assert store.record_at(phy_offset) is None

    run_scenario(scenario)


def test_messages_are_read_from_memory_and_from_files_alike(run_scenario):
    async def scenario(harness):
        store = harness.open()
        for number in range(50):
            await harness.put(b"%d" % number)
            if number in (10, 33):
                await store._maintenance.write_queues()
        assert harness.bodies() == [b"%d" % n for n in range(50)]
        assert harness.bodies(offset=20) == [b"%d" % n for n in range(20, 50)]

    run_scenario(scenario)


def test_so_much_unwritten_that_memory_is_at_risk_is_refused_as_busy(run_scenario):
    async def scenario(harness):
        store = harness.open(unwritten_bytes_max=1000)
        statuses = [store.put(draft(bytes(300))).status for _ in range(5)]
        assert statuses[-1] is PutStatus.OS_PAGE_CACHE_BUSY
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        assert store.put(draft()).status is PutStatus.PUT_OK

    run_scenario(scenario)


def test_after_a_stop_nothing_is_taken(run_scenario):
    async def scenario(harness):
        store = harness.open()
        await store.stop()
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE

    run_scenario(scenario)


def test_background_work_flushes_and_writes_queues_by_itself(run_scenario):
    async def scenario(harness):
        store = harness.open(flush_interval_ms=5, flush_interval_consume_queue_ms=5)
        await store.start()
        await harness.put()
        for _ in range(1000):
            if store._parts.checkpoint.dispatched == store.max_phy_offset:
                break
            await asyncio.sleep(0.005)
        assert store._log.flushed == store.max_phy_offset == store._parts.checkpoint.dispatched
        assert (harness.root / "consumequeue/T/0" / ("0" * 20)).stat().st_size == 400

    run_scenario(scenario)


def test_settings_refuse_what_cannot_work():
    from cometmq.errors import SettingsError

    for bad in (
        {"flush_disk_type": "NEVER"},
        {"consume_queue_file_bytes": 30},
        {"delete_when": "24"},
        {"delete_when": "four"},
        {"commit_log_file_bytes": 0},
    ):
        with pytest.raises(SettingsError):
            StoreSettings(**bad)
