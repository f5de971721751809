"""What `cometmq pipeline deadletters` and `parked` have in common: their options, and the run.

A command takes `@group_table_options` and gets a `GroupTableRun`, besides what `spark_job_options`
and `json_option` give; `run.keep(...)` appends to the table until it is done or a signal ends it.
Java: none.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import every_option, json_option, namesrv_option, skip_lost_option
from cometmq.cli.spark_jobs import RunProgressBar, spark_job_options, stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.spark.tables.archive import ArchiveResult


@dataclass(frozen=True, slots=True)
class GroupTableRun:
    """Which groups' messages a command appends to which table, and how long."""

    directory: str
    groups: tuple[str, ...]
    every_s: float | None
    skip_lost: bool
    namesrv: str
    options: Mapping[str, str]

    def keep(
        self,
        append: Callable[..., ArchiveResult],
        spark: SparkSession,
        bars: ProgressBars,
        name: str,
    ) -> ArchiveResult:
        """Append by `dead_letters` or `parked_messages`, and show how far it is as `name`."""
        with stopped_by_signals(self.every_s) as stop:
            return append(
                spark,
                self.directory,
                groups=self.groups,
                namesrv=self.namesrv,
                options=self.options,
                every_s=self.every_s,
                stop=stop,
                fail_on_data_loss=not self.skip_lost,
                report=RunProgressBar(bars, name).show,
            )


_OPTIONS = (
    click.argument("directory", metavar="DIRECTORY"),
    click.option("--group", "groups", multiple=True, help="Only this group; may be repeated."),
    skip_lost_option,
    every_option,
    namesrv_option,
    security_options,
    spark_job_options,
    json_option,
)


def group_table_options(command: Any) -> Any:
    """Give a command these options, as the arguments `run`, `job` and `as_json`."""

    @functools.wraps(command)
    def called(
        *,
        directory: str,
        groups: tuple[str, ...],
        every_s: float | None,
        skip_lost: bool,
        namesrv: str,
        options: Mapping[str, str],
        **rest: Any,
    ) -> Any:
        run = GroupTableRun(directory, groups, every_s, skip_lost, namesrv, options)
        return command(run=run, **rest)

    wrapped: Any = called
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
