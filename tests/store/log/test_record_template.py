"""What a template puts is what the store puts, byte by byte: records, places and entries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cometmq.store.message_store import MessageDraft
from store.conftest import StoreHarness, tags_code

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.store.log.record_template import RecordTemplate

pytestmark = pytest.mark.usefixtures("each_form")

HOSTS = {"short": bytes((10, 0, 0, 7, 0, 0, 1, 2)), "long": bytes(range(16)) + bytes((0, 0, 1, 2))}
MESSAGES = [
    (number % 3, 1_000 + number // 4, b"b" * (number % 5), b"TAGS\x01%d\x02" % (number % 2))
    for number in range(100)
]
SHARED = {"flag": 5, "sys_flag": 2, "reconsume_times": 3}


def put_each(template: RecordTemplate) -> list[tuple[int, int]]:
    found = []
    for queue_id, born_ms, body, raw in MESSAGES:
        placed = template.put(queue_id, born_ms, body, raw, tags_code("T", raw, 0))
        assert placed is not None
        found.append(placed[:2])
    return found


def put_in_runs(template: RecordTemplate) -> list[tuple[int, int]]:
    """As many as go, and one by itself where a file ends."""
    found: list[tuple[int, int]] = []
    while len(found) < len(MESSAGES):
        ids, born, bodies, raws = (list(each) for each in zip(*MESSAGES[len(found) :], strict=True))
        codes = [tags_code("T", raw, 0) for raw in raws]
        run = template.put_run(ids, born, bodies, raws, codes)
        found += zip(run.phy_offsets, run.queue_offsets, strict=True)
        if len(run.phy_offsets) < len(ids):
            at = len(run.phy_offsets)
            placed = template.put(ids[at], born[at], bodies[at], raws[at], codes[at])
            assert placed is not None
            found.append(placed[:2])
    return found


def stored(
    root: Path, host: bytes, with_crc: bool, way: str
) -> tuple[list[tuple[int, int]], list[bytes], list[object]]:
    """Places of the messages, the files of log and queues, and what is read."""
    harness = StoreHarness(root / way)

    async def scenario() -> list[tuple[int, int]]:
        store = harness.open(append_crc=with_crc, commit_log_file_bytes=4096)
        places: list[tuple[int, int]] = []
        if way == "store":
            for queue_id, born_ms, body, raw in MESSAGES:
                draft = MessageDraft(
                    "T", queue_id, body, raw, born_ms=born_ms, born_host=host, **SHARED
                )
                placed = store.put(draft)
                places.append((placed.phy_offset, placed.queue_offset))
        else:
            template = store.record_template("T", 3, born_host=host, **SHARED)
            places = put_each(template) if way == "each" else put_in_runs(template)
        await harness.wait_until_durable()
        read.extend(harness.bodies("T", queue_id) for queue_id in range(3))
        await harness.stop()
        return places

    read: list[object] = []
    places = asyncio.run(scenario())
    paths = sorted((harness.root / "commitlog").iterdir())
    paths += sorted((harness.root / "consumequeue").rglob("0" * 20))
    return places, [path.read_bytes() for path in paths], read


@pytest.mark.parametrize(("host", "with_crc"), [("short", True), ("long", False)])
def test_a_template_puts_what_the_store_puts(tmp_path: Path, host: str, with_crc: bool) -> None:
    expected = stored(tmp_path, HOSTS[host], with_crc, "store")
    assert len(expected[1]) > 4, "several files"
    for way in ("each", "runs"):
        assert stored(tmp_path, HOSTS[host], with_crc, way) == expected


def test_a_template_puts_a_batch_side_by_side_in_one_file_or_nothing_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = StoreHarness(tmp_path)
        store = harness.open(commit_log_file_bytes=4096)
        template = store.record_template("T", 1, born_host=HOSTS["short"], **SHARED)
        for size, count in ((700, 3), (700, 3), (700, 6), (5_000, 1)):
            bodies, raws = [b"b" * size] * count, [b"TAGS\x01a\x02"] * count
            end, queued = store.max_phy_offset, store.max_offset("T", 0)
            placed = template.put_batch(0, 1, bodies, raws, [0] * count)
            await harness.wait_until_durable()
            if size * count > 4096:
                assert placed is None
                assert (store.max_phy_offset, store.max_offset("T", 0)) == (end, queued)
                continue
            assert placed is not None
            assert list(placed.queue_offsets) == list(range(queued, queued + count))
            begin, last = placed.phy_offsets[0], store.max_phy_offset - 1
            assert begin // 4096 == last // 4096
            assert last + 1 - begin == placed.size
        assert harness.bodies() == [b"b" * 700] * 6
        await harness.stop()

    asyncio.run(scenario())
