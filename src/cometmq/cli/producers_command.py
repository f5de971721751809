"""The command `cometmq producers`: who is connected as a producer.

Java: mqadmin producer, producerConnection
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import shown_time, shown_version
from cometmq.client.admin.nearest_name import nearest
from cometmq.errors import GroupNotFound

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess


@click.command()
@click.argument("group", required=False)
@cluster_options
@json_option
def producers(access: ClusterAccess, as_json: bool, group: str | None) -> None:
    """Show the connected producers, of one producer GROUP or of all."""
    found = access.ask(lambda admin: admin.producers())
    if group is not None:
        if group not in found:
            raise GroupNotFound(
                f"no producer of the group {group} is connected{nearest(group, found)}"
            )
        found = {group: found[group]}
    if as_json:
        rows = [
            {
                "group": name,
                "client_id": one.client_id,
                "addr": one.remote_addr,
                "language": one.language,
                "version": shown_version(one.version),
                "seen_ms": one.seen_ms,
            }
            for name, each in found.items()
            for one in each
        ]
        print_json(rows)
        return
    cells = [
        (name, *one[:3], shown_version(one.version), shown_time(one.seen_ms))
        for name, each in sorted(found.items())
        for one in each
    ]
    print_table(("group", "client", "address", "language", "version", "seen"), cells)
