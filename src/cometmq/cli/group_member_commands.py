"""The commands about members of consumer groups: who they are, what they do.

Java: mqadmin consumerConnection, consumerStatus
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import shown_time, shown_version

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.group_status import GroupMember


@click.command()
@click.argument("name", metavar="GROUP")
@cluster_options
@json_option
def members(access: ClusterAccess, as_json: bool, name: str) -> None:
    """Show who is connected for a GROUP, from where, and which queues each has."""
    found = access.ask(lambda admin: admin.group_members(name))
    if as_json:
        print_json(
            {
                "group": name,
                "consume_type": found.consume_type,
                "message_model": found.message_model,
                "subscriptions": {
                    topic: one.sub_string for topic, one in found.subscriptions.items()
                },
                "members": [_member_json(one) for one in found.members],
            }
        )
        return
    if not found.members:
        click.echo(f"{name}: no member is connected")
        return
    rows = [
        (
            *(one.connection.client_id, one.connection.client_addr.removeprefix("/")),
            *(one.connection.language, shown_version(one.connection.version)),
            one.problem or _queues_text(one),
        )
        for one in found.members
    ]
    print_table(("member", "address", "language", "version", "queues"), rows)
    for topic, one in sorted(found.subscriptions.items()):
        click.echo(f"subscribed: {topic} {one.sub_string}")


def _queues_text(member: GroupMember) -> str:
    """The queues by topic and broker, as `orders@broker-a 0,1`."""
    places = groupby(member.queues, lambda queue: (queue.topic, queue.broker_name))
    texts = [
        f"{topic}@{broker} {','.join(str(queue.queue_id) for queue in queues)}"
        for (topic, broker), queues in places
    ]
    return "; ".join(texts) or "-"


def _member_json(one: GroupMember) -> dict[str, object]:
    return {
        "client_id": one.connection.client_id,
        "addr": one.connection.client_addr.removeprefix("/"),
        "language": one.connection.language,
        "version": shown_version(one.connection.version),
        "queues": [queue._asdict() for queue in one.queues],
        "problem": one.problem or None,
    }


@click.command()
@click.argument("name", metavar="GROUP")
@click.option("--member", help="Only this client id.")
@click.option("--stacks", is_flag=True, help="Also the threads of members in Java.")
@cluster_options
@json_option
def running(
    access: ClusterAccess, as_json: bool, name: str, member: str | None, stacks: bool
) -> None:
    """Show what the members of a GROUP do: rates by topic, messages held by queue."""

    async def work(admin: AsyncAdmin) -> dict[str, ConsumerRunningInfo]:
        found = await admin.group_members(name, running=False)
        ids = [one.connection.client_id for one in found.members] if member is None else [member]
        return {each: await admin.member_info(name, each, stacks=stacks) for each in ids}

    infos = access.ask(work)
    if as_json:
        print_json({each: _running_json(info) for each, info in infos.items()})
        return
    if not infos:
        click.echo(f"{name}: no member is connected")
    for each, info in infos.items():
        click.echo(each)
        _print_running(info)


def _running_json(info: ConsumerRunningInfo) -> dict[str, object]:
    return {
        "properties": info.properties,
        "topics": {topic: asdict(one) for topic, one in info.status_table.items()},
        "queues": [{**queue._asdict(), **asdict(one)} for queue, one in info.mq_table.items()],
        "stacks": info.jstack,
    }


def _print_running(info: ConsumerRunningInfo) -> None:
    if info.status_table:
        rates = [
            (topic, *(f"{value:.2f}" for value in asdict(one).values()))
            for topic, one in sorted(info.status_table.items())
        ]
        print_table(
            ("topic", "pull ms", "pulls/s", "handler ms", "ok/s", "failed/s", "failed/h"), rates
        )
    if info.mq_table:
        queues = [
            (
                *queue,
                *(held.commit_offset, held.cached_msg_count, held.cached_msg_size_in_mib),
                *map(shown_time, (held.last_pull_timestamp, held.last_consume_timestamp)),
            )
            for queue, held in sorted(info.mq_table.items())
        ]
        print_table(
            ("topic", "broker", "queue", "committed", "held", "MiB", "pulled", "consumed"), queues
        )
    if info.jstack:
        click.echo(info.jstack)
