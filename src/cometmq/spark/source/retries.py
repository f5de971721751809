"""How long the source goes on asking name servers and brokers that do not answer.

Owns which errors a retry can help with, and the wait between attempts.
Invariant: after `retryForMs` without success the last error is raised.
"""

from __future__ import annotations

import time

from cometmq.errors import BrokerError, CometError
from cometmq.spark.connection_security import explained
from cometmq.wire.codes import ResponseCode

_PAUSE_S = 0.2


class RetryDeadline:
    """Decides whether a failed attempt is retried, and waits before it is.

    The time starts at the first failure, and starts again after `reset`.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None

    def reset(self) -> None:
        """Note a success: the next failure starts the time again."""
        self._since = None

    def wait_or_raise(self, error: CometError, limit_s: float | None = None) -> None:
        """Wait a moment; raise the error when the time is over or a retry cannot help."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        limit = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
        if not is_temporary(error) or now - self._since >= limit:
            raise explained(error)
        time.sleep(_PAUSE_S)


def is_temporary(error: CometError) -> bool:
    """Whether a retry can help: brokers restart, routes return, a busy broker recovers."""
    if isinstance(error, BrokerError):
        return error.code in {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
    return error.retriable
