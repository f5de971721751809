"""What the commands that run a Spark job have in common: options, the session, progress, Ctrl-C.

A command takes `@spark_job_options` and gets a `SparkJob`; `job.run(work)` calls `work` with the
session and the progress bars. Spark's own messages go to the file of --spark-log, or nowhere.
Invariant: stdout has the result alone, so that --json can be piped.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.progress_bars import ProgressBars, redirected_stderr
from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from cometmq.spark.tables.table_appender import TableProgress

Result = TypeVar("Result")

_NEEDED = ("pyspark", "pyarrow", "pandas")


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The session that a command asks for."""

    cores: int | None
    heap_mb: int
    conf: dict[str, str]
    log: Path | None

    def run(self, work: Callable[[SparkSession, ProgressBars], Result]) -> Result:
        """Start Spark, do the work, stop Spark. Raises SettingsError where Spark isn't there.

        A session that runs in this process already is used, and left running.
        """
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise SettingsError(f"this needs {', '.join(missing)}: pip install 'cometmq[spark]'")
        from pyspark.sql import SparkSession

        from cometmq.spark.session import spark_session

        is_ours = SparkSession.getActiveSession() is None
        log = self.log or Path(os.devnull)
        with redirected_stderr(log) as stderr, ProgressBars(stderr) as bars:
            started = bars.step("starting Spark", 1)
            spark = spark_session(
                "cometmq-pipeline", cores=self.cores, heap_mb=self.heap_mb, conf=self.conf
            )
            started(1)
            try:
                return work(spark, bars)
            finally:
                if is_ours:
                    spark.stop()


class RunProgressBar:
    """A bar for each run of an archive that has something to do."""

    def __init__(self, bars: ProgressBars, name: str) -> None:
        self._bars, self._name = bars, name
        self._show: Any = None

    def show(self, progress: TableProgress) -> None:
        """Show how far a run is; without commits it begins."""
        done = progress.rows + progress.misfits
        if self._show is None or not progress.commits:
            self._show = self._bars.step(f"archiving {self._name}", done + progress.waiting)
        self._show(done)


_OPTIONS = (
    click.option("--cores", type=click.IntRange(1), help="Tasks at once.  [default: all cores]"),
    click.option(
        "--heap-mb", type=click.IntRange(256), default=1024, show_default=True,
        help="Memory of Spark's JVM, MiB.",
    ),
    click.option(
        "--conf", "conf", metavar="KEY=VALUE", multiple=True,
        help="A setting of Spark, such as spark.master=spark://host:7077; may be repeated.",
    ),
    click.option(
        "--spark-log", "log", type=click.Path(path_type=Path, dir_okay=False),
        help="Append Spark's own messages to this file.  [default: they are dropped]",
    ),
)  # fmt: skip


def spark_job_options(command: Any) -> Any:
    """Give a command the options of the session, as the argument `job`, a SparkJob."""

    def called(
        *, cores: int | None, heap_mb: int, conf: tuple[str, ...], log: Path | None, **rest: Any
    ) -> Any:
        return command(job=SparkJob(cores, heap_mb, _pairs(conf), log), **rest)

    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped: Any = called
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@contextmanager
def stopped_by_signals(every_s: float | None) -> Iterator[threading.Event | None]:
    """An event that SIGTERM and the first Ctrl-C set; the second Ctrl-C ends the job at once.

    A job without `every_s` ends by itself: it has no event, and signals end it as any program.
    """
    if every_s is None:
        yield None
        return
    stop = threading.Event()

    def ask(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise click.UsageError(f"--conf {text}: write KEY=VALUE")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}
