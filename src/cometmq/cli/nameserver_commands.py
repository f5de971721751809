"""The commands about settings of running name servers. `cometmq namesrv` starts one.

Java: mqadmin getNamesrvConfig, updateNamesrvConfig
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.config_arguments import chosen, print_settings, settings_to_change
from cometmq.cli.printed_columns import print_json
from cometmq.cli.shared_options import json_option

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess


@click.group(cls=CommandGroup)
def nameservers() -> None:
    """Settings of running name servers."""


@nameservers.group()
def config() -> None:
    """Settings of all name servers that are named with --namesrv."""


@config.command("get")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@cluster_options
@json_option
def get_config(access: ClusterAccess, as_json: bool, keys: tuple[str, ...]) -> None:
    """Show the settings of each name server, or these KEYs of them."""
    found = access.ask(lambda admin: admin.name_server_config())
    if as_json:
        print_json({addr: chosen(settings, keys) for addr, settings in found.items()})
        return
    for addr, settings in found.items():
        click.echo(f"# {addr}")
        print_settings(chosen(settings, keys), as_json=False)


@config.command("set")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@cluster_options
def set_config(access: ClusterAccess, pairs: tuple[str, ...]) -> None:
    """Change settings of all name servers."""
    changes = settings_to_change(pairs)
    for addr, remark in access.ask(lambda admin: admin.set_name_server_config(changes)).items():
        click.echo(f"{addr}: changed {', '.join(changes)}" + (f"; {remark}" if remark else ""))
