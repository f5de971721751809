"""The commands that look at topics: status, route, stats, allocate.

Java: mqadmin topicStatus, topicRoute, topicClusterList, statsAll, allocateMQ
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.late_progress import LateProgress
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import shown_time
from cometmq.model.admin_stats import TopicTraffic
from cometmq.model.topic import PERM_READ, PERM_WRITE
from cometmq.rules.allocate import STRATEGIES, share_of

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.admin_stats import TopicOffset
    from cometmq.model.queue import MessageQueue


@click.command()
@click.argument("name")
@cluster_options
@json_option
def status(access: ClusterAccess, as_json: bool, name: str) -> None:
    """Show each queue of the topic NAME: its offsets, how many messages, the time of the last."""
    found = sorted(access.ask(lambda admin: admin.topic_stats(name)).items())
    total = sum(offset.max_offset - offset.min_offset for _, offset in found)
    if as_json:
        queues = [_status_json(queue, offset) for queue, offset in found]
        print_json({"topic": name, "messages": total, "queues": queues})
        return
    rows = [_status_row(queue, offset) for queue, offset in found]
    rows.append(("all", "", "", "", str(total), ""))
    print_table(("broker", "queue", "first", "next", "messages", "last"), rows)


def _status_row(queue: MessageQueue, offset: TopicOffset) -> tuple[str, ...]:
    first, after = offset.min_offset, offset.max_offset
    numbers = (queue.queue_id, first, after, after - first)
    last = offset.last_update_timestamp
    return queue.broker_name, *map(str, numbers), shown_time(last) if last else ""


def _status_json(queue: MessageQueue, offset: TopicOffset) -> dict[str, object]:
    return {
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "first_offset": offset.min_offset,
        "end_offset": offset.max_offset,
        "messages": offset.max_offset - offset.min_offset,
        "last_stored_ms": offset.last_update_timestamp,
    }


@click.command()
@click.argument("name")
@cluster_options
@json_option
def route(access: ClusterAccess, as_json: bool, name: str) -> None:
    """Show where the topic NAME lies, as name servers tell clients."""
    found = access.ask(lambda admin: admin.topic_route(name))
    brokers = {data.broker_name: data for data in found.broker_datas}
    rows = [
        {
            "broker": queues.broker_name,
            "cluster": brokers[queues.broker_name].cluster,
            "addrs": {
                str(number): addr
                for number, addr in sorted(brokers[queues.broker_name].broker_addrs.items())
            },
            "read_queues": queues.read_queue_nums,
            "write_queues": queues.write_queue_nums,
            "perm": _perm(queues.perm),
        }
        for queues in sorted(found.queue_datas, key=lambda one: one.broker_name)
        if queues.broker_name in brokers
    ]
    if as_json:
        print_json({"topic": name, "order": found.order_topic_conf, "brokers": rows})
        return
    cells = [
        [_addrs_text(value) if isinstance(value, dict) else value for value in row.values()]
        for row in rows
    ]
    print_table(("broker", "cluster", "addresses", "read", "write", "perm"), cells)


def _perm(bits: int) -> str:
    return (
        "".join(letter for letter, bit in (("r", PERM_READ), ("w", PERM_WRITE)) if bits & bit)
        or "-"
    )


def _addrs_text(addrs: dict[str, str]) -> str:
    return " ".join(f"{number}={addr}" for number, addr in addrs.items())


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@cluster_options
@json_option
def stats(access: ClusterAccess, as_json: bool, names: tuple[str, ...]) -> None:
    """Show the traffic of topics NAMES, or of all: a second in the last minute, and in a day.

    Brokers count from their start on.
    """

    async def work(admin: AsyncAdmin) -> dict[str, TopicTraffic]:
        wanted, found = names or await admin.topics(), dict[str, TopicTraffic]()
        with LateProgress("topics", len(wanted)) as progress:
            for name in wanted:
                found[name] = await admin.topic_traffic(name)
                progress.step()
        return found

    found = access.ask(work)
    if as_json:
        print_json([_traffic_json(name, one) for name, one in found.items()])
        return
    rows: list[tuple[object, ...]] = []
    for name, one in found.items():
        written = (f"{one.written.per_second:.2f}", one.written.in_day)
        rows += [
            (name, group, *written, f"{read.per_second:.2f}", read.in_day)
            for group, read in one.read.items()
        ] or [(name, "-", *written, "-", "-")]
    print_table(("topic", "group", "in/s", "in a day", "out/s", "out a day"), rows)


def _traffic_json(name: str, one: TopicTraffic) -> dict[str, object]:
    return {
        "topic": name,
        "in": one.written._asdict(),
        "out": {group: read._asdict() for group, read in one.read.items()},
    }


@click.command()
@click.argument("name")
@click.argument("members", metavar="MEMBER...", nargs=-1, required=True)
@click.option("--by", type=click.Choice(list(STRATEGIES)), default="AVG", show_default=True)
@cluster_options
@json_option
def allocate(
    access: ClusterAccess, as_json: bool, name: str, members: tuple[str, ...], by: str
) -> None:
    """Show which queues of the topic NAME each of these MEMBERs would get; nothing changes."""
    queues = access.ask(lambda admin: admin.queues(name))
    shares = {member: share_of(STRATEGIES[by], member, queues, members) for member in members}
    if as_json:
        print_json({member: [queue._asdict() for queue in each] for member, each in shares.items()})
        return
    rows = [
        (member, len(each), " ".join(f"{queue[1]}:{queue[2]}" for queue in each) or "-")
        for member, each in shares.items()
    ]
    print_table(("member", "queues", "which"), rows)
