"""`cometmq pipeline deadletters` and `redrive`: dead letters as a table, and back to their topics.

Thin faces of `cometmq.spark.tables.dead_letters` and `redrive`, where the work is described.
Java: none.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cometmq.cli.group_table_options import group_table_options
from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import json_option, namesrv_option
from cometmq.cli.spark_jobs import spark_job_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from cometmq.cli.group_table_options import GroupTableRun
    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.cli.spark_jobs import SparkJob
    from cometmq.spark.tables.archive import ArchiveResult

VIEW = "dead_letters"


@click.command()
@group_table_options
def deadletters(job: SparkJob, as_json: bool, run: GroupTableRun) -> None:
    """Append the dead letters of all groups to a table in DIRECTORY; each once.

    Dead-letter topics are found by their names. A run goes on where the last one ended.
    """
    from cometmq.spark.tables.dead_letters import dead_letters

    def work(spark: SparkSession, bars: ProgressBars) -> ArchiveResult:
        return run.keep(dead_letters, spark, bars, "dead letters")

    done = job.run(work)
    if as_json:
        click.echo(json.dumps(asdict(done)))
    else:
        click.echo(f"{done.rows:,} dead letters added to {run.directory}")


@click.command()
@click.argument("directory", metavar="DIRECTORY")
@click.option(
    "--sql",
    metavar="SELECT",
    help=f'Which ones, and repaired how: a query of the view {VIEW}, such as "SELECT * FROM '
    f"{VIEW} WHERE group = 'payers'\".  [default: all]",
)
@click.option("--topic", help="Send all to this topic.  [default: where each came from]")
@click.option("--yes", is_flag=True, help="Send; without it, only show how many.")
@namesrv_option
@security_options
@spark_job_options
@json_option
def redrive(
    job: SparkJob,
    as_json: bool,
    directory: str,
    sql: str | None,
    topic: str | None,
    yes: bool,
    namesrv: str,
    options: Mapping[str, str],
) -> None:
    """Send the dead letters of the table in DIRECTORY to their topics again, in order.

    Without --yes it only says what it would send. Messages of one sharding key keep their order. A
    letter stays in the table; a second call, and a second operator, leave out what was sent.
    """
    from cometmq.spark.tables import redrive as redriving
    from cometmq.spark.tables.archive_reading import read_archive
    from cometmq.spark.tables.spark_failures import spark_errors_translated

    def work(spark: SparkSession, bars: ProgressBars) -> dict[str, int]:
        done = bars.step("sending dead letters" if yes else "counting dead letters", 1)
        with spark_errors_translated():
            letters = read_archive(spark, directory)
            letters.createOrReplaceTempView(VIEW)
            chosen = spark.sql(sql or f"SELECT * FROM {VIEW}")
        if yes:
            counts = redriving.redrive(chosen, namesrv=namesrv, topic=topic, options=options)
        else:
            counts = redriving.planned(chosen, topic=topic)
        done(1)
        return counts

    counts = job.run(work)
    if as_json:
        click.echo(json.dumps({"sent": yes, "topics": counts}))
        return
    for name, count in sorted(counts.items()):
        click.echo(f"{count:,} dead letters {'sent to' if yes else 'for'} {name}")
    if not counts:
        click.echo("no dead letter was chosen")
    elif not yes:
        click.echo("nothing was sent: --yes sends them")
