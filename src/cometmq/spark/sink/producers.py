"""The started producers that a worker process keeps from one task to the next.

Owns their start and end. Invariants: a producer is used by one task at a time; at most `KEPT_MAX`
wait for a next task, each for `IDLE_S` at most; a forked process has none of its parent's.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from cometmq.client.blocking.bridge import BlockingBridge
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.spark.sink.row_decisions import BODY_BYTES_MAX

if TYPE_CHECKING:
    from cometmq.client.producer.send_pipeline import SendPipeline
    from cometmq.spark.connection_security import ConnectionSecurity

KEPT_MAX = 2
IDLE_S = 60.0


class CachedProducer:
    """A started producer of one group at one set of name servers."""

    def __init__(self, group: str, namesrv: tuple[str, ...], security: ConnectionSecurity) -> None:
        self.key = (group, namesrv, security)
        self._producer = AsyncProducer(
            group,
            namesrv=list(namesrv),
            body_bytes_max=BODY_BYTES_MAX,
            **security.client_settings(),
        )
        self.bridge = BlockingBridge("sink")
        self.bridge.start(self._producer.start())
        self.idle_end: threading.Timer | None = None

    @property
    def pipeline(self) -> SendPipeline:
        """What sends."""
        return self._producer.pipeline

    def stop(self) -> None:
        """Close its connections."""
        self.bridge.stop(self._producer.stop())


_kept: list[CachedProducer] = []
_lock = threading.Lock()


def take(group: str, namesrv: tuple[str, ...], security: ConnectionSecurity) -> CachedProducer:
    """A kept producer of these, or a new one; pair it with `give_back` or its `stop`.

    Raises SettingsError where a file of TLS is not on this machine.
    """
    with _lock:
        for one in _kept:
            if one.key == (group, namesrv, security):
                _kept.remove(one)
                assert one.idle_end is not None, "a kept producer has an end"
                one.idle_end.cancel()
                return one
    return CachedProducer(group, namesrv, security)


def give_back(producer: CachedProducer) -> None:
    """Keep a producer without sends under way for the next task; the oldest has to go."""
    end = threading.Timer(IDLE_S, _end, [producer])
    end.daemon = True
    with _lock:
        _kept.append(producer)
        producer.idle_end = end
        over = _kept[:-KEPT_MAX]
        del _kept[:-KEPT_MAX]
    end.start()
    for one in over:
        one.stop()


def stop_all() -> None:
    """Stop the producers that wait for a next task."""
    with _lock:
        idle = _kept[:]
        _kept.clear()
    for one in idle:
        if one.idle_end is not None:
            one.idle_end.cancel()
        one.stop()


def _end(producer: CachedProducer) -> None:
    with _lock:
        if producer not in _kept:
            return
        _kept.remove(producer)
    producer.stop()


def _forget() -> None:
    """Leave the parent's producers to it: their thread does not exist in a forked child."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
