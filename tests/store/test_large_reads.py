"""Large reads: more messages at once for who asks, of any age, with few waits for the disk."""

from __future__ import annotations

import pytest

from cometmq.store.message_store import GetStatus, MessageDraft
from cometmq.store.queues import queue_reader
from cometmq.wire.records import log_record as stored

ANY = 1 << 62


def put(store, count, *, queues=1, size=100):
    for number in range(count):
        body = b"%d" % (number // queues) + bytes(size)
        store.put(MessageDraft("T", number % queues, body, b"TAGS\x01a\x02", born_ms=1))


async def filled(harness, count, *, restarted, **how):
    """A store with messages: written just now, or read from the disk."""
    store = harness.open(commit_log_file_bytes=32 << 20, consume_queue_file_bytes=100_000)
    for at in range(0, count, 2000):
        put(store, min(2000, count - at), **how)
        await harness.wait_until_durable()
    if restarted:
        await harness.stop()
        store = harness.open()
    return store


def numbers(got):
    return [record.queue_offset for record in stored.iterate(got.body)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_large_read_brings_more_and_others_what_they_always_did(run_scenario, restarted):
    async def scenario(harness):
        store = await filled(harness, 2100, restarted=restarted)
        assert numbers(store.get("T", 0, 5, 5000, ANY, is_large=True)) == list(range(5, 1029))
        assert store.get("T", 0, 0, 40, ANY, is_large=True).count == 40
        assert store.get("T", 0, 0, 5000, ANY).count == 32
        store._queue_reader._fresh_bytes = 1000
        assert store.get("T", 0, 0, 5000, ANY).count == 8
        assert store.get("T", 0, 0, 5000, ANY, is_large=True).count == 1024
        assert store.get("T", 0, 2000, 5000, ANY, is_large=True).count == 100

    run_scenario(scenario)


def test_the_bytes_of_a_large_read_are_limited_but_the_first_message_always_comes(run_scenario):
    async def scenario(harness):
        store = await filled(harness, 1000, restarted=False, size=2000)
        got = store.get("T", 0, 0, 5000, ANY, is_large=True)
        assert (1 << 20) - 2200 < len(got.body) <= 1 << 20
        assert numbers(got) == list(range(got.next_offset))
        assert store.get("T", 0, 7, 5000, 5000, is_large=True).count == 2
        assert store.get("T", 0, 7, 5000, 10, is_large=True).count == 1
        tagged = store.get("T", 0, 0, 5000, ANY, lambda _code: True, is_large=True)
        assert tagged == got

    run_scenario(scenario)


def test_a_large_read_brings_as_much_as_the_settings_allow(run_scenario):
    async def scenario(harness):
        store = await filled(harness, 1500, restarted=False)
        store.adjust(harness.settings.__class__(transfer_count_in_memory_max=1300))
        assert store.get("T", 0, 0, 5000, ANY, is_large=True).count == 1300

    run_scenario(scenario)


def test_records_far_apart_on_the_disk_are_read_with_few_waits(run_scenario, disk, monkeypatch):
    monkeypatch.setattr(queue_reader, "LARGE_SPAN_BYTES", 100_000)

    async def scenario(harness):
        store = await filled(harness, 2400, queues=24, restarted=True)
        disk.is_asleep = True
        fetched = []
        fetch = store.cold_reader.fetch

        async def noted(missing):
            fetched.append(missing)
            await fetch(missing)

        store.cold_reader.fetch = noted
        found, pulls, at, end = [], 0, 0, store.max_offset("T", 3)
        while at < end:
            got = await store.cold_reader.run(
                lambda context, at=at: context.get("T", 3, at, 5000, ANY, is_large=True)
            )
            assert got.status is GetStatus.FOUND
            found += numbers(got)
            at, pulls = got.next_offset, pulls + 1
        assert found == list(range(end))
        assert 3 < pulls <= store.max_phy_offset // 100_000 + 1
        assert len(fetched) <= 3 * pulls  # the queue's entries, and records once
        tagged = store.get("T", 3, 0, 5000, ANY, lambda _code: True, is_large=True)
        assert 10 < tagged.next_offset < 40

    run_scenario(scenario)
