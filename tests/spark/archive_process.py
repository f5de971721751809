"""An archive job in a process of its own, to be killed: at a point of a commit, or at any time."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from cometmq.spark.session import spark_session
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.manifest_log import ManifestLog

if TYPE_CHECKING:
    from collections.abc import Callable


def killed_after(method: Callable[..., object], count: int) -> Callable[..., object]:
    """The method; its nth call is the last thing that this process does."""
    calls = 0

    def called(*given: object) -> object:
        nonlocal calls
        calls += 1
        done = method(*given)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return called


def main() -> None:
    namesrv, topic, place, point, max_rows = sys.argv[1:]
    if point:
        name, _, count = point.partition(":")
        setattr(ManifestLog, name, killed_after(getattr(ManifestLog, name), int(count)))
    spark = spark_session("killed", cores=2, heap_mb=512, conf=QUICK)
    print("started", flush=True)  # noqa: T201 - the test waits for it
    every_s = None if point else 0.1
    archive(spark, topic, place, namesrv=namesrv, max_rows=int(max_rows), every_s=every_s)


QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

if __name__ == "__main__":
    main()
