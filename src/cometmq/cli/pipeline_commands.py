"""The commands `cometmq pipeline`: tables of topics, kept with Spark.

Each command is a thin face of a function of `cometmq.spark.tables`, where the work is described.
Owns options, printing and exit codes: 1 also where a table is not what it should be.
Java: none.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command_group import CommandGroup
from cometmq.cli.dead_letter_commands import deadletters, redrive
from cometmq.cli.order_command import order
from cometmq.cli.parked_table_commands import parked, release
from cometmq.cli.printed_columns import print_columns
from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import (
    every_option,
    iceberg_option,
    json_option,
    namesrv_option,
    skip_lost_option,
)
from cometmq.cli.spark_jobs import RunProgressBar, spark_job_options, stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.cli.spark_jobs import SparkJob
    from cometmq.spark.tables.archive import ArchiveResult
    from cometmq.spark.tables.archive_verification import ArchiveAudit, QueueAudit
    from cometmq.spark.tables.backlog import TopicBacklog


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Keep tables of topics with Spark: archive them, verify, audit their order, see backlogs."""


@pipeline.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.argument("directory", metavar="DIRECTORY")
@click.option(
    "--schema",
    metavar="DDL",
    help="Fields of JSON bodies, such as 'name string, amount int'; what does not fit is kept "
    "as misfits, with the reason.",
)
@click.option("--keep-body", is_flag=True, help="With --schema: keep the bodies as well.")
@click.option(
    "--partition",
    default="day",
    show_default=True,
    metavar="day|hour|none|SQL",
    help="By store time, or an expression such as 'to_date(value.time) AS day'.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Messages of a commit at most.",
)
@skip_lost_option
@click.option("--no-compact", is_flag=True, help="Do not merge small files.")
@every_option
@iceberg_option
@namesrv_option
@security_options
@spark_job_options
@json_option
def archive(
    job: SparkJob,
    as_json: bool,
    topics: tuple[str, ...],
    directory: str,
    every_s: float | None,
    skip_lost: bool,
    no_compact: bool,
    **rest: Any,
) -> None:
    """Append what TOPICs hold to a table of Parquet files in DIRECTORY; each message once.

    A run goes on where the last commit ended, whatever happened to the last run.
    """
    from cometmq.spark.tables.archive import archive as run

    def work(spark: SparkSession, bars: ProgressBars) -> ArchiveResult:
        with stopped_by_signals(every_s) as stop:
            return run(
                spark,
                topics,
                directory,
                every_s=every_s,
                stop=stop,
                fail_on_data_loss=not skip_lost,
                compact=not no_compact,
                report=RunProgressBar(bars, ", ".join(topics)).show,
                **rest,
            )

    done = job.run(work)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    misfits = f" and {done.misfits:,} misfits" if done.misfits else ""
    click.echo(f"{done.rows:,} rows{misfits} added to {directory} in {done.commits} commits")


@pipeline.command()
@click.argument("directory", metavar="DIRECTORY")
@click.option("--bodies", is_flag=True, help="Read all bodies at the brokers and compare them.")
@iceberg_option
@namesrv_option
@security_options
@spark_job_options
@json_option
@click.pass_context
def verify(
    ctx: click.Context, /, job: SparkJob, as_json: bool, directory: str, **rest: Any
) -> None:
    """Compare the archive in DIRECTORY with its brokers, queue by queue.

    The exit code is 1 when a row is missing, repeated or different, or a queue is not the one that
    was archived. What waits, and what retention has deleted since, is shown and is no fault.
    """
    from cometmq.spark.tables.archive_verification import verify_archive

    def work(spark: SparkSession, bars: ProgressBars) -> ArchiveAudit:
        done = bars.step(f"verifying {directory}", 1)
        audit = verify_archive(spark, directory, **rest)
        done(1)
        return audit

    audit = job.run(work)
    if as_json:
        click.echo(json.dumps(audit.as_json(), indent=2))
    else:
        _print_audit(audit)
    ctx.exit(0 if audit.is_exact else 1)


@pipeline.command()
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@click.option(
    "--over",
    "over_s",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    help="Seconds over which rates are measured.",
)
@namesrv_option
@security_options
@json_option
def backlog(
    groups: tuple[str, ...], over_s: float, namesrv: str, as_json: bool, options: Mapping[str, str]
) -> None:
    """Show how far GROUPs are behind in each topic, and when they will have caught up.

    Without names, all groups that have committed an offset. Needs no Spark.
    """
    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.spark.tables import backlog as job

    with ProgressBars(sys.stderr) as bars:
        done = bars.step(f"measuring rates for {over_s:g} s", 1)
        rows = job.backlog(groups, namesrv=namesrv, over_s=over_s, options=options)
        done(1)
    if as_json:
        click.echo(json.dumps(job.as_json(rows), indent=2))
        return
    print_columns([_BACKLOG, *(_backlog_cells(one) for one in rows)])


_BACKLOG = (
    "group", "topic", "queues", "lag", "behind", "in/s", "out/s", "drained", "skew", "longest",
    "retry", "dead",
)  # fmt: skip


def _backlog_cells(one: TopicBacklog) -> list[str]:
    drained = "never" if one.drain_s is None else f"{one.drain_s:.0f}s"
    return [
        *map(str, (one.group, one.topic, one.queues, one.lag)),
        "-" if one.behind_s is None else f"{one.behind_s:.0f}s",
        *map(str, (one.in_rate, one.out_rate)),
        drained,
        *map(str, (one.skew, one.longest_queue or "-", one.retry_depth, one.dead_letters)),
    ]


_SHOWN = (
    "topic", "broker", "queue_id", "begin", "end", "rows", "misfits", "holes", "unreadable",
    "missing", "repeats", "removed", "waiting", "compared", "different",
)  # fmt: skip


def _print_audit(audit: ArchiveAudit) -> None:
    rows = [[*map(str, _cells(one))] for one in audit.queues]
    print_columns([_SHOWN, *rows])
    for one in audit.queues:
        if one.problem:
            click.echo(one.problem)
    for name in audit.missing_files:
        click.echo(f"the file {name} is missing")
    wrong = sum(not one.is_exact for one in audit.queues)
    click.echo(f"{wrong} queues are not exact" if wrong else "every queue is exact")


def _cells(one: QueueAudit) -> list[object]:
    values = asdict(one)
    return ["-" if values[name] is None else values[name] for name in _SHOWN]


pipeline.add_command(deadletters)
pipeline.add_command(redrive)
pipeline.add_command(parked)
pipeline.add_command(release)
pipeline.add_command(order)
