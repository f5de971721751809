"""`cometmq pipeline parked` and `release`: parked messages as a table, and back in their order.

Thin faces of `cometmq.spark.tables.parked_messages` and `parked_return`, where the work is
described. Java: none.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cometmq.cli.group_table_options import group_table_options
from cometmq.cli.printed_columns import print_columns
from cometmq.cli.redrive_options import print_report
from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import json_option, namesrv_option
from cometmq.cli.spark_jobs import spark_job_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from cometmq.cli.group_table_options import GroupTableRun
    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.cli.spark_jobs import SparkJob
    from cometmq.model.parking import RedriveReport
    from cometmq.spark.tables.archive import ArchiveResult

VIEW = "parked"


@click.command()
@group_table_options
def parked(job: SparkJob, as_json: bool, run: GroupTableRun) -> None:
    """Append what became of parked messages to a table in DIRECTORY, and count their states.

    Parking topics are found by their names. A run goes on where the last one ended.
    """
    from cometmq.spark.tables.parked_messages import parked_messages, read_parked
    from cometmq.spark.tables.spark_failures import spark_errors_translated
    from cometmq.spark.tables.table_logs import table_log

    def states(spark: SparkSession) -> dict[str, int]:
        if not table_log(spark, run.directory).version:
            return {}  # nothing was parked yet, so there is no table
        found = read_parked(spark, run.directory)
        with spark_errors_translated():
            return {row[0]: int(row[1]) for row in found.groupBy("state").count().collect()}

    def work(spark: SparkSession, bars: ProgressBars) -> tuple[ArchiveResult, dict[str, int]]:
        done = run.keep(parked_messages, spark, bars, "parking topics")
        return done, states(spark)

    done, counts = job.run(work)
    if as_json:
        click.echo(json.dumps({**asdict(done), "states": counts}))
        return
    click.echo(f"{done.rows:,} records added to {run.directory}")
    if counts:
        rows = [(name, f"{count:,}") for name, count in sorted(counts.items())]
        print_columns([("state", "messages"), *rows])


@click.command()
@click.argument("directory", metavar="DIRECTORY")
@click.option(
    "--sql",
    metavar="SELECT",
    help=f'Which ones, and repaired how: a query of the view {VIEW}, such as "SELECT * FROM '
    f"{VIEW} WHERE key = 'N1'\".  [default: all that are parked]",
)
@click.option("--redrive", is_flag=True, help="To their topics, for all groups.")
@click.option("--to", help="With --redrive: all to this topic.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=60.0, help="Seconds.", show_default=True
)
@click.option("--yes", is_flag=True, help="Do it; without, only say how many.")
@namesrv_option
@security_options
@spark_job_options
@json_option
def release(
    job: SparkJob,
    as_json: bool,
    directory: str,
    sql: str | None,
    redrive: bool,
    to: str | None,
    wait_s: float,
    yes: bool,
    namesrv: str,
    options: Mapping[str, str],
) -> None:
    """Let parked keys of the table in DIRECTORY go on, in order, with the bodies of its rows.

    Without --yes it only says how many. A key that has a chosen message goes as a whole, to the
    handler of its group. Rows of messages that have left are passed over.
    """
    from cometmq.spark.tables.parked_messages import read_parked
    from cometmq.spark.tables.parked_return import send_back
    from cometmq.spark.tables.spark_failures import spark_errors_translated

    def work(spark: SparkSession, bars: ProgressBars) -> RedriveReport:
        done = bars.step("sending parked messages" if yes else "counting parked messages", 1)
        with spark_errors_translated():
            read_parked(spark, directory).createOrReplaceTempView(VIEW)
            chosen = spark.sql(sql or f"SELECT * FROM {VIEW} WHERE state = 'parked'")
        report = send_back(
            chosen,
            namesrv=namesrv,
            to=to,
            redrive=redrive,
            dry_run=not yes,
            wait_s=wait_s,
            options=options,
        )
        done(1)
        return report

    print_report(job.run(work), "sent" if redrive else "released", as_json=as_json)
