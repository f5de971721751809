"""Hot. Sends of many threads over the connections of the loop thread: many in one loop iteration.

Owns how a thread hands its message over and waits; refuses to know frames and retries. Threads with
a connection each fight for the interpreter's lock after each system call; here a thread sleeps once
a send, and the loop writes what has come meanwhile in one piece. Invariants: a thread has one send
under way, and wakes when it is over or the loop has ended.
Java: none
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cometmq.client.blocking.event_loop_thread import INTERRUPT_S
from cometmq.client.producer.send_fast_path import result_of
from cometmq.client.producer.thread_sender import FailedSend
from cometmq.errors import CometError
from cometmq.model.message import Message

if TYPE_CHECKING:
    from cometmq.client.blocking.event_loop_thread import EventLoopThread
    from cometmq.client.producer.send_fast_path import PostedSend, SendFastPath
    from cometmq.model.results import SendResult
    from cometmq.wire.command import Command
    from cometmq.wire.templates.send_response import SendAnswer

_POLL_S = -1.0 if INTERRUPT_S is None else INTERRUPT_S
_threads = threading.local()


def send_joined(
    loop_thread: EventLoopThread, fast_path: SendFastPath, message: Message, timeout_s: float
) -> SendResult | FailedSend | None:
    """Send on the loop's connection. None: use the slow path; FailedSend: the attempt failed.

    Called by any thread but the loop's. Raises TooManyRequests, and NotStarted when the loop ends.
    """
    if type(message) is not Message or message.sharding_key is not None:
        return None
    mine: _JoinedSend | None = getattr(_threads, "idle", None)
    _threads.idle = None  # a signal handler that sends meanwhile, or an interrupt, needs another
    if mine is None:
        mine = _JoinedSend()
    outcome = mine.send(loop_thread, fast_path, message, timeout_s)
    _threads.idle = mine
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class _JoinedSend:
    """The sends of one thread, one at a time; it is woken by the release of a lock."""

    __slots__ = ("_begun", "_deadline", "_fast_path", "_message", "_outcome", "_posted", "_woken")

    _begun: float
    _deadline: float
    _fast_path: SendFastPath
    _message: Message
    _outcome: SendResult | FailedSend | Exception | None
    _posted: PostedSend

    def __init__(self) -> None:
        self._woken = threading.Lock()
        self._woken.acquire()

    def send(
        self,
        loop_thread: EventLoopThread,
        fast_path: SendFastPath,
        message: Message,
        limit_s: float,
    ) -> SendResult | FailedSend | Exception | None:
        """Have the loop send, and wait for what comes of it."""
        self._begun = time.monotonic()
        self._deadline = self._begun + limit_s
        self._fast_path, self._message = fast_path, message
        loop_thread.submit(self._post, self._end)
        while not self._woken.acquire(timeout=_POLL_S):
            pass  # so that Ctrl-C is noticed
        return self._outcome

    def done(self) -> bool:
        """Whether nobody waits: never, as the channel ends each send once."""
        return False

    def set_result(self, answer: SendAnswer | Command) -> None:
        """Take the response (on the loop)."""
        target, msg_id, _ = self._posted
        try:
            result = result_of(target, target.addr, msg_id, answer)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self.set_exception(error)
            return
        target.counts.ok += 1
        target.counts.spent_s += time.monotonic() - self._begun
        self._end(result)

    def set_exception(self, error: Exception) -> None:
        """Take the reason why there is no response, or no good one (on the loop)."""
        target, msg_id, born_ms = self._posted
        target.counts.failed += 1
        if isinstance(error, CometError):
            self._end(FailedSend(msg_id, born_ms, (error, target.queue)))
        else:
            self._end(error)

    def _post(self) -> None:
        """Write the message (on the loop)."""
        try:
            posted = self._fast_path.post(self, self._message, self._deadline)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self._end(error)
            return
        if posted is None:
            self._end(None)
        else:
            self._posted = posted

    def _end(self, outcome: SendResult | FailedSend | Exception | None) -> None:
        self._outcome = outcome
        self._woken.release()
