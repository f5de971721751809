"""The window of chunks that a task has sent and not seen answered.

Owns the bound on what is under way. Invariants: at most `chunks_max` chunks wait for answers;
`finish` returns only when every answer is in; after a failure nothing more is begun. Used by the
task's thread; sends run on the client's own thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from cometmq.spark.sink import producers
from cometmq.spark.sink.chunk_sender import ChunkSender

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from cometmq.spark.sink.row_decisions import RowChunk
    from cometmq.spark.sink.sink_options import SinkOptions


class SendWindow:
    """Sends chunks for one task. Use it as a context manager."""

    def __init__(self, options: SinkOptions, partition: int, chunks_max: int) -> None:
        self._options, self._partition = options, partition
        self._chunks_max = chunks_max
        self._under_way: deque[tuple[RowChunk, Future[None]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer: producers.CachedProducer
        self._sender: ChunkSender

    def __enter__(self) -> Self:
        """Take a started producer."""
        options = self._options
        self._producer = producers.take(options.group, options.namesrv, options.security)
        self._sender = ChunkSender(
            self._producer.pipeline,
            options.retry_for_ms / 1000,
            self._partition,
            keeps_refused=bool(options.rejected_path),
        )
        return self

    def __exit__(self, *exc: object) -> None:
        """Give the producer back; after a failure end what it still sends, and stop it."""
        if exc[0] is None and not self._under_way:
            producers.give_back(self._producer)
            return
        try:
            self._producer.bridge.call(self._cancel())
        finally:
            self._producer.stop()

    def send(self, chunk: RowChunk) -> Iterator[RowChunk]:
        """Begin to send a chunk, when the window has room; yields earlier ones that are sent.

        Raises the error of an earlier one. Nothing is sent unless the caller iterates.
        """
        while len(self._under_way) >= self._chunks_max:
            yield self._next()
        begin = self._producer.bridge.begin(lambda: self._begin(chunk))
        self._under_way.append((chunk, begin))

    def finish(self) -> Iterator[RowChunk]:
        """Wait for every answer; yields the chunks that were under way."""
        while self._under_way:
            yield self._next()

    def _next(self) -> RowChunk:
        chunk, done = self._under_way[0]
        done.result()
        self._under_way.popleft()
        return chunk

    def _begin(self, chunk: RowChunk) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._sender.send(chunk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _cancel(self) -> None:
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
