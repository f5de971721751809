"""The command `cometmq cluster`: what a cluster is made of. Java: mqadmin clusterList"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.broker_rows import BROKER_HEAD, broker_row, broker_rows
from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import counted

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin


@click.command()
@cluster_options
@json_option
def cluster(access: ClusterAccess, as_json: bool) -> None:
    """Show the brokers of each cluster, how much they do, and how many topics and groups there are.

    Rates are messages a second over the last ten seconds.
    """

    async def work(admin: AsyncAdmin) -> tuple[list[dict[str, object]], int, int]:
        return await broker_rows(admin), len(await admin.topics()), len(await admin.groups())

    brokers, topics, groups = access.ask(work)
    if as_json:
        print_json({"brokers": brokers, "topics": topics, "groups": groups})
        return
    print_table(BROKER_HEAD, list(map(broker_row, brokers)))
    click.echo(f"{counted(topics, 'topic')}, {counted(groups, 'group')}")
