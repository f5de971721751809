"""What a polling consumer hands out, and in which order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.received_messages import received
from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.polling.poll_buffer import PollBuffer
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.message import MessageExt


def run(scenario: Callable[[PollBuffer, AssignedQueue, AssignedQueue], None]) -> None:
    """Run a scenario with the buffer of two queues."""

    async def main() -> None:
        one, other = (AssignedQueue(MessageQueue("T", "b", number), 0) for number in range(2))
        scenario(PollBuffer(), one, other)

    asyncio.run(main())


def pull(buffer: PollBuffer, assigned: AssignedQueue, count: int) -> None:
    """Put so many more messages of a queue into the buffer, as one pull does."""
    first = assigned.window.next_offset
    messages = [
        received(at, queue_id=assigned.queue.queue_id) for at in range(first, first + count)
    ]
    assigned.window.put(messages, first + count)
    buffer.add_messages(assigned, messages)


def places(messages: list[MessageExt]) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for message in messages]


def test_a_queue_that_was_paused_goes_on_in_its_order() -> None:
    def scenario(buffer: PollBuffer, one: AssignedQueue, other: AssignedQueue) -> None:
        pull(buffer, one, 2)
        pull(buffer, other, 1)
        pull(buffer, one, 2)
        one.is_paused = True
        assert places(buffer.take(10)) == [(1, 0)]
        assert buffer.take(10) == []
        one.is_paused = False
        assert places(buffer.take(10) + buffer.take(10)) == [(0, at) for at in range(4)]
        assert one.window.commit_offset == 4
        assert buffer.message_count == 0

    run(scenario)


def test_messages_of_a_dropped_queue_are_forgotten_and_the_others_are_handed_out() -> None:
    def scenario(buffer: PollBuffer, one: AssignedQueue, other: AssignedQueue) -> None:
        pull(buffer, one, 3)
        pull(buffer, other, 3)
        one.drop()
        assert places(buffer.take(2)) == [(1, 0), (1, 1)]
        assert buffer.last_taken == (other, 0)
        assert places(buffer.take(2)) == [(1, 2)]
        assert buffer.message_count == 0

    run(scenario)
