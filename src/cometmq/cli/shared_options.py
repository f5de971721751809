"""Options that several commands take, each said once."""

from __future__ import annotations

import click

namesrv_option = click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT;...",
    help="Name servers; NAMESRV_ADDR is taken as well.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
every_option = click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Go on until Ctrl-C or SIGTERM, with a run every so many seconds.  [default: one run]",
)
skip_lost_option = click.option(
    "--skip-lost", is_flag=True, help="Go on without messages that retention deleted."
)
iceberg_option = click.option(
    "--iceberg", metavar="CATALOG",
    help="DIRECTORY is a table, NAMESPACE.TABLE, of this catalog in pyiceberg's configuration.",
)  # fmt: skip
