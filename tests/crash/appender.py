"""The child of the crash test: opens a store, puts messages, prints what was acknowledged.

Called with the store's directory, the flush mode and a seed. One line a message on stdout, written
only after PUT_OK: topic, queue, offset, number. It goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles
from cometmq.settings.store import StoreSettings
from cometmq.store.message_store import MessageDraft, MessageStore, PutStatus


def settings(flush: str) -> StoreSettings:
    return StoreSettings(
        flush_disk_type=flush,
        commit_log_file_bytes=64 * 1024,
        consume_queue_file_bytes=400,
        flush_interval_ms=10,
        flush_interval_consume_queue_ms=10,
        flush_consume_queue_thorough_interval_ms=30,
        open_files_max=16,
        max_hash_slot_num=500,
        max_index_num=400,
    )


def open_store(root: Path, flush: str) -> MessageStore:
    return MessageStore.open(
        root,
        settings(flush),
        clock=SystemClock(),
        files=SystemFiles(),
        tags_code=lambda topic, raw, ms: 0,
        store_host=bytes(8),
    )


def body_of(number: int) -> bytes:
    return b"%d " % number + bytes(number * 7919 % 3000)


async def append_for_ever(root: Path, flush: str, seed: int) -> None:
    rng, store, number = Random(seed), open_store(root, flush), seed * 1_000_000
    await store.start()
    loop = asyncio.get_running_loop()
    while True:
        lines, placed_all = [], []
        for _ in range(rng.choice((1, 1, 5, 50))):
            number += 1
            topic, queue_id = rng.choice("AB"), rng.randint(0, 3)
            keys = b"KEYS\x01k%d all\x02" % number
            placed = store.put(MessageDraft(topic, queue_id, body_of(number), keys))
            placed_all.append(placed.status)
            lines.append(b"%s %d %d %d\n" % (topic.encode(), queue_id, placed.queue_offset, number))
        answer: asyncio.Future[PutStatus] = loop.create_future()
        store.on_durable(answer.set_result)
        if await answer is PutStatus.PUT_OK and set(placed_all) == {PutStatus.PUT_OK}:
            os.write(1, b"".join(lines))


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
