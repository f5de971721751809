"""The command that says why a consumer group is not faster, and what would help.

Looks (`client/admin/group_watch`), judges (`rules/diagnosis/bottleneck`), prints. Java: none.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.printed_columns import print_json, print_json_line
from cometmq.cli.shared_options import json_option

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin


@click.command()
@click.argument("group")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True,
    help="How long the group is looked at.",
)  # fmt: skip
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--times", type=click.IntRange(1), help="With --watch: end after so many times.")
@cluster_options
@json_option
def why(
    access: ClusterAccess,
    as_json: bool,
    group: str,
    seconds: float,
    watch: bool,
    times: int | None,
) -> None:
    """Say why a GROUP is not faster, and what each change would bring.

    Asks its brokers and members twice, and compares; changes nothing. Works with Apache RocketMQ's
    servers and members, too, which say less. With --watch and --json each look is one line.
    """

    async def work(admin: AsyncAdmin) -> None:
        for number in count(1):
            found = await admin.why(group, seconds)
            if as_json:
                (print_json_line if watch else print_json)(found.as_json())
            else:
                if watch:
                    click.clear()
                for line in found.lines():
                    click.echo(line)
            if not watch or number == times:
                return

    access.ask(work)
