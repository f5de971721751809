"""The window of chunks that a task has sent and not seen answered.

Owns the producer of one task, and the bound on what is under way. Invariants: at most `chunks_max`
chunks wait for answers; `finish` returns only when every answer is in; after a failure nothing more
is begun. Used by the task's thread; sends run on the client's own thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from cometmq.client.blocking.bridge import BlockingBridge
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.spark.sink.chunk_sender import BODY_BYTES_MAX, ChunkSender

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cometmq.spark.sink.row_messages import RowChunk
    from cometmq.spark.sink.sink_options import SinkOptions


class SendWindow:
    """Sends chunks for one task. Use it as a context manager."""

    def __init__(self, options: SinkOptions, partition: int, chunks_max: int) -> None:
        self._producer = AsyncProducer(
            options.group, namesrv=list(options.namesrv), body_bytes_max=BODY_BYTES_MAX
        )
        self._bridge = BlockingBridge("sink")
        self._sender = ChunkSender(self._producer, options.retry_for_ms / 1000, partition)
        self._chunks_max = chunks_max
        self._under_way: deque[Future[int]] = deque()
        self._tasks: set[asyncio.Task[int]] = set()
        self._sent = 0

    def __enter__(self) -> Self:
        """Start the producer."""
        self._bridge.start(self._producer.start())
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop the producer, and what it still sends after a failure."""
        self._bridge.stop(self._stop())

    def send(self, chunk: RowChunk) -> None:
        """Begin to send a chunk, when the window has room; raises the error of an earlier one."""
        while len(self._under_way) >= self._chunks_max:
            self._sent += self._under_way.popleft().result()
        self._under_way.append(self._bridge.begin(lambda: self._begin(chunk)))

    def finish(self) -> int:
        """Wait for every answer; how many messages were sent."""
        while self._under_way:
            self._sent += self._under_way.popleft().result()
        return self._sent

    def _begin(self, chunk: RowChunk) -> asyncio.Task[int]:
        task = asyncio.get_running_loop().create_task(self._sender.send(chunk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stop(self) -> None:
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._producer.stop()
