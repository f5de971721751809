"""The commands about running brokers: list, status, replication, config, metadata, permissions.

`cometmq broker` starts one. Java: mqadmin brokerStatus, getBrokerConfig, updateBrokerConfig,
wipeWritePerm, addWritePerm, exportMetadata
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cometmq.cli.broker_rows import BROKER_HEAD, broker_row, broker_rows
from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.config_arguments import chosen, print_settings, settings_to_change
from cometmq.cli.late_progress import LateProgress
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.replication_rows import REPLICATION_HEAD, replication_row, replication_rows
from cometmq.cli.shared_options import json_option

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin


@click.group(cls=CommandGroup)
def brokers() -> None:
    """Look at running brokers and change them. BROKER is a name, or the address of one."""


_broker = click.argument("broker")


@brokers.command("list")
@cluster_options
@json_option
def list_brokers(access: ClusterAccess, as_json: bool) -> None:
    """List the brokers, masters and slaves, and whether they answer."""
    rows = access.ask(broker_rows)
    if as_json:
        print_json(rows)
    else:
        print_table(BROKER_HEAD, list(map(broker_row, rows)))


@brokers.command()
@cluster_options
@json_option
def replication(access: ClusterAccess, as_json: bool) -> None:
    """Show how far the slaves of each master are, and whom each slave follows."""
    rows = access.ask(replication_rows)
    if as_json:
        print_json(rows)
    else:
        print_table(REPLICATION_HEAD, list(map(replication_row, rows)))


@brokers.command()
@_broker
@click.option("--force", is_flag=True, help="Though the master answers.")
@click.option(
    "--may-lose", is_flag=True, help="With --force: though another broker does not answer, too."
)
@cluster_options
@json_option
def promote(access: ClusterAccess, as_json: bool, broker: str, force: bool, may_lose: bool) -> None:
    """Make a slave the master. BROKER: its address, or its name where it is the only slave.

    The former master, once it is back, becomes a slave; what it alone had is kept there:
    `cometmq store unreplicated` shows it and sends it again.
    """
    done = access.ask(lambda admin: admin.promote(broker, force=force, may_lose=may_lose))
    if as_json:
        print_json(done._asdict())
        return
    click.echo(f"{done.addr} is the master of epoch {done.epoch}, from byte {done.start} on")
    for addr in done.silent:
        click.echo(f"{addr} did not answer: what it alone has will be moved out of its log")


@brokers.command()
@_broker
@cluster_options
@json_option
def status(access: ClusterAccess, as_json: bool, broker: str) -> None:
    """Show what a BROKER says of itself: version, rates, disk, delays."""
    print_settings(access.ask(lambda admin: admin.broker_status(broker)), as_json=as_json)


@brokers.group()
def config() -> None:
    """Settings of a running broker."""


@config.command("get")
@_broker
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@cluster_options
@json_option
def get_config(access: ClusterAccess, as_json: bool, broker: str, keys: tuple[str, ...]) -> None:
    """Show the settings of a BROKER, or these KEYs of them."""
    found = access.ask(lambda admin: admin.broker_config(broker))
    print_settings(chosen(found, keys), as_json=as_json)


@config.command("set")
@_broker
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@cluster_options
def set_config(access: ClusterAccess, broker: str, pairs: tuple[str, ...]) -> None:
    """Change settings of a running BROKER: all of them, or none and the reason."""
    changes = settings_to_change(pairs)
    remark = access.ask(lambda admin: admin.set_broker_config(broker, changes))
    click.echo(f"{broker}: changed {', '.join(changes)}")
    if remark:
        click.echo(remark)


@brokers.command("wipe-write")
@_broker
@cluster_options
def wipe_write(access: ClusterAccess, broker: str) -> None:
    """Have clients send nothing to BROKER, a name, so that it can be stopped when it is read."""

    async def work(admin: AsyncAdmin) -> dict[str, int]:
        return await admin.wipe_write_permission(broker)

    for addr, count in access.ask(work).items():
        click.echo(f"{broker}: {count} topics take no messages any more, says {addr}")


@brokers.command("restore-write")
@_broker
@cluster_options
def restore_write(access: ClusterAccess, broker: str) -> None:
    """Have clients send to BROKER, a name, again."""

    async def work(admin: AsyncAdmin) -> dict[str, int]:
        return await admin.restore_write_permission(broker)

    for addr, count in access.ask(work).items():
        click.echo(f"{broker}: {count} topics take messages again, says {addr}")


@brokers.command()
@cluster_options
def metadata(access: ClusterAccess) -> None:
    """Print the topics and groups of each broker, without RocketMQ's own, as JSON."""

    async def work(admin: AsyncAdmin) -> dict[str, dict[str, dict[str, object]]]:
        found: dict[str, dict[str, dict[str, object]]] = {}
        topics, groups = await admin.topics(), await admin.groups()
        with LateProgress("topics and groups", len(topics) + len(groups)) as progress:
            for topic in topics:
                for broker, config in (await admin.topic_config(topic)).items():
                    _part(found, broker, "topics")[topic] = asdict(config)
                progress.step()
            for group in groups:
                for broker, settings in (await admin.group_config(group)).items():
                    _part(found, broker, "groups")[group] = asdict(settings)
                progress.step()
        return found

    print_json(access.ask(work))


def _part(
    found: dict[str, dict[str, dict[str, object]]], broker: str, name: str
) -> dict[str, object]:
    return found.setdefault(broker, {"topics": {}, "groups": {}})[name]
