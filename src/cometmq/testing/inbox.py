"""A handler that keeps what it gets, for tests that wait for messages and look at their order."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue


class Inbox:
    """Give it to `subscribe` as the handler; any thread or loop may read and wait.

    `fail` is called with each message before it is kept: what it raises is the handler's error.
    """

    def __init__(self, fail: Callable[[MessageExt], object] | None = None) -> None:
        self.messages: list[MessageExt] = []
        """What arrived, in order, repeats included."""
        self._fail = fail
        self._changed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def __call__(self, messages: list[MessageExt]) -> None:
        """Handle messages as a consumer's handler."""
        for message in messages:
            if self._fail is not None:
                self._fail(message)
            with self._changed:
                self.messages.append(message)
                self._changed.notify_all()
                for loop, arrived in self._waiting:
                    loop.call_soon_threadsafe(arrived.set)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of what arrived, in order."""
        return [message.body for message in self.messages]

    def wait(self, count: int, timeout_s: float = 30.0) -> list[MessageExt]:
        """Wait until `count` messages have arrived and return all that have.

        Raises AssertionError when they have not within `timeout_s` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self.messages) >= count, timeout_s)
        return self._checked(count, timeout_s)

    async def arrived(self, count: int, timeout_s: float = 30.0) -> list[MessageExt]:
        """Do as `wait`, on an event loop."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            self._waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.messages) < count:
                    await waiter[1].wait()
                    waiter[1].clear()
        except TimeoutError:
            pass
        finally:
            with self._changed:
                self._waiting.remove(waiter)
        return self._checked(count, timeout_s)

    def assert_in_order(self, key: Callable[[MessageExt], Hashable] | None = None) -> None:
        """Check that what arrived is in order, as `assert_in_order` does."""
        assert_in_order(self.messages, key)

    def _checked(self, count: int, timeout_s: float) -> list[MessageExt]:
        found = list(self.messages)
        assert len(found) >= count, (
            f"{len(found)} of {count} messages arrived within {timeout_s:g} s: {self.bodies!r:.200}"
        )
        return found


def assert_in_order(
    messages: Iterable[MessageExt], key: Callable[[MessageExt], Hashable] | None = None
) -> None:
    """Check that the messages of each key came in the order in which their queue has them.

    `key` is a function of a message; None: its sharding key, and its queue where it has none.
    Deliveries are at least once, so a message that came before may come again. Raises
    AssertionError with the first that came out of turn.
    """
    last: dict[Hashable, MessageExt] = {}
    seen: set[tuple[MessageQueue, int]] = set()
    for message in messages:
        place = (message.message_queue, message.queue_offset)
        if place in seen:
            continue
        seen.add(place)
        its_key = _key_of(message) if key is None else key(message)
        before = last.get(its_key)
        assert before is None or _comes_after(before, message), (
            f"{message} came after {before}; the key is {its_key!r}"
        )
        last[its_key] = message


def _key_of(message: MessageExt) -> Hashable:
    key = message.sharding_key
    return message.message_queue if key is None else (message.topic, key)


def _comes_after(before: MessageExt, message: MessageExt) -> bool:
    """Whether the queue has them so; messages of one key in two queues have no order."""
    is_same = before.message_queue == message.message_queue
    return is_same and message.queue_offset > before.queue_offset
