"""`cometmq pipeline order`: are the messages of a topic, or of an archive, stored in order?

A thin face of `cometmq.spark.tables.order`, where the work is described.
Java: none.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.printed_columns import print_columns
from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import iceberg_option, json_option, namesrv_option
from cometmq.cli.spark_jobs import spark_job_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from cometmq.cli.progress_bars import ProgressBars
    from cometmq.cli.spark_jobs import SparkJob
    from cometmq.spark.tables.stored_order import StoredOrder


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--archive",
    "directory",
    metavar="DIRECTORY",
    help="Look at the rows of this archive instead of topics at their brokers.",
)
@click.option(
    "--key",
    metavar="SQL",
    default="sharding_key",
    show_default=True,
    help="What keeps messages together: a column, or an expression of Spark's SQL.",
)
@click.option(
    "--sequence",
    metavar="SQL",
    help="What numbers the messages of a key, such as properties.seq, value.number or "
    "\"get_json_object(string(body), '$.number')\".  [default: nothing does]",
)
@iceberg_option
@namesrv_option
@security_options
@spark_job_options
@json_option
@click.pass_context
def order(
    ctx: click.Context,
    /,
    job: SparkJob,
    as_json: bool,
    topics: tuple[str, ...],
    directory: str | None,
    iceberg: str | None,
    namesrv: str,
    options: Mapping[str, str],
    **rest: Any,
) -> None:
    """Audit the order of TOPICs as stored, or of an archive: by offset, by key, by sequence.

    Finds holes and repeats of offsets, keys whose messages lie in several queues, and with
    --sequence messages behind one of a higher number. The exit code is 1 when there is any.
    """
    if bool(topics) == bool(directory):
        raise click.UsageError("name topics, or an archive with --archive, and not both")
    if iceberg and not directory:
        raise click.UsageError("--iceberg is about an archive: name its table with --archive")
    if directory and any(name.startswith("tls") for name in options):
        raise click.UsageError("--archive asks no broker: leave out --tls and what goes with it")

    def work(spark: SparkSession, bars: ProgressBars) -> StoredOrder:
        from cometmq.spark.tables.order import order_of_archive, order_of_topics

        done = bars.step(f"reading {directory or ', '.join(topics)}", 1)
        if directory:
            found = order_of_archive(spark, directory, iceberg=iceberg, **rest)
        else:
            found = order_of_topics(spark, topics, namesrv=namesrv, options=options, **rest)
        done(1)
        return found

    found = job.run(work)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _print(found)
    ctx.exit(0 if found.is_in_order else 1)


def _print(found: StoredOrder) -> None:
    for rows in (found.queues, found.keys):
        if rows:
            print_columns(_columns([asdict(one) for one in rows]))
    for sentence in found.examples:
        click.echo(sentence)
    if not found.queues:
        click.echo("there is no message")
    elif not found.is_in_order:
        click.echo("1 fault" if found.faults == 1 else f"{found.faults:,} faults")
    elif not any(one.keys for one in found.keys):
        click.echo("the offsets are in order; no message has a key")
    else:
        click.echo("all is in order")


def _columns(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A head, and a line for each row; without the columns that no row has."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return [names, *([str(row[name]) for name in names] for row in rows)]
