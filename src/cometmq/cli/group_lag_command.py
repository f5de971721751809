"""The command `cometmq group lag`: how far groups are behind, once or again and again.

Java: mqadmin consumerProgress, startMonitoring
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.late_progress import LateProgress
from cometmq.cli.printed_columns import print_json, print_json_line, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import shown_number, shown_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.group_status import QueueLag

_AT_ONCE = 8


@click.command()
@click.argument("name", metavar="[GROUP]", required=False)
@click.option("--topic", help="In this topic only.")
@click.option("--all", "all_groups", is_flag=True, help="A line for each group.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--every", "every_s", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True,
    metavar="SECONDS", help="With --watch: how often.",
)  # fmt: skip
@click.option("--times", type=click.IntRange(1), help="With --watch: end after so many times.")
@cluster_options
@json_option
def lag(
    access: ClusterAccess,
    as_json: bool,
    name: str | None,
    topic: str | None,
    all_groups: bool,
    watch: bool,
    every_s: float,
    times: int | None,
) -> None:
    """Show how far a GROUP is behind in each queue, and which member has the queue.

    The lag is what is stored and not done; "-" where the group has not begun. With --watch and
    --json each look is one line.
    """
    if (name is None) is not all_groups or (all_groups and topic):
        raise click.UsageError("name a group, and a topic if you want, or give --all")

    async def work(admin: AsyncAdmin) -> None:
        for number in count(1):
            if name is None:
                await _show_all(admin, as_json, is_line=watch)
            else:
                await _show_lag(admin, name, topic, as_json, is_line=watch)
            if not watch or number == times:
                return
            await asyncio.sleep(every_s)
            if not as_json:
                click.clear()

    access.ask(work)


async def _show_lag(
    admin: AsyncAdmin, name: str, topic: str | None, as_json: bool, *, is_line: bool
) -> None:
    found = await admin.group_lag(name, topic)
    if as_json:
        queues = [_lag_json(one) for one in found]
        value = {"group": name, "lag": _total(found), "queues": queues}
        (print_json_line if is_line else print_json)(value)
        return
    head = (
        "topic",
        "broker",
        "queue",
        "first",
        "end",
        "committed",
        "lag",
        "in flight",
        "done to",
        "member",
    )
    rows = [_lag_row(one) for one in found]
    total = ("all", *[""] * 5, _total(found), "", "", "")
    print_table(head, [*rows, total])


def _lag_row(one: QueueLag) -> tuple[object, ...]:
    numbers = (one.first_offset, one.end_offset, one.committed, one.lag, one.in_flight)
    return (
        *(one.queue.topic, one.queue.broker_name, one.queue.queue_id),
        *map(shown_number, numbers),
        shown_time(one.last_consumed_ms),
        one.owner or "-",
    )


def _lag_json(one: QueueLag) -> dict[str, object]:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "first_offset": one.first_offset,
        "end_offset": one.end_offset,
        "committed": one.committed,
        "lag": one.lag,
        "in_flight": one.in_flight,
        "last_consumed_ms": one.last_consumed_ms,
        "owner": one.owner,
    }


def _total(found: Sequence[QueueLag]) -> int:
    return sum(one.lag or 0 for one in found)


def _cell(value: object) -> object:
    return "-" if value is None else value


async def _show_all(admin: AsyncAdmin, as_json: bool, *, is_line: bool) -> None:
    names, slots = await admin.groups(), asyncio.Semaphore(_AT_ONCE)
    with LateProgress("groups", len(names)) as progress:

        async def one(name: str) -> dict[str, object]:
            async with slots:
                lags = await admin.group_lag(name, owners=False)
                members = await admin.group_members(name, running=False)
            progress.step()
            return {
                "group": name,
                "members": len(members.members),
                "model": members.message_model if members.members else None,
                "topics": len({each.queue.topic for each in lags}),
                "lag": _total(lags),
            }

        rows = await asyncio.gather(*map(one, names))
    if as_json:
        (print_json_line if is_line else print_json)(rows)
    else:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        print_table(("group", "members", "model", "topics", "lag"), cells)
