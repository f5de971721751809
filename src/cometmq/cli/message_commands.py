"""The commands about single messages: get, by-key, by-time, trace, resend.

Java: mqadmin queryMsgById, queryMsgByUniqueKey, queryMsgByOffset, queryMsgByKey, queryMsgTraceById
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.cluster_access import cluster_options, confirm, yes_option
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import message_json, shown_time
from cometmq.cli.time_arguments import TimeArgument
from cometmq.cli.topic_reading_commands import print_messages
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.client.session.argument_checks import INT64_MAX
from cometmq.model.message import RESERVED_PROPERTIES, Message
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import TRACE_TOPIC

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.admin_stats import ConsumeMessageDirectlyResult
    from cometmq.model.message import MessageExt
    from cometmq.model.results import SendResult
    from cometmq.model.trace_event import TraceEvent


@click.group(cls=CommandGroup)
def message() -> None:
    """Find messages by id, key, place and time; see what became of them, send them again."""


_topic = click.argument("topic")
_id = click.argument("place", metavar="ID")
_begin = click.option("--begin", "begin_ms", type=TimeArgument(), help="Stored then or later.")
_end = click.option("--end", "end_ms", type=TimeArgument(), help="Stored before.  [default: all]")


@message.command()
@_topic
@_id
@cluster_options
@json_option
def get(access: ClusterAccess, as_json: bool, topic: str, place: str) -> None:
    """Show the message of TOPIC with this ID: the producer's, the broker's, or BROKER:QUEUE:OFFSET.

    Brokers index what was sent within about a second.
    """
    found = access.ask(lambda admin: _find(admin, topic, place))
    facts = message_json(found)
    if as_json:
        print_json(facts)
        return
    body = facts.pop("body")
    facts |= {"born_ms": shown_time(found.born_ms), "stored_ms": shown_time(found.store_ms)}
    properties = facts.pop("properties")
    assert isinstance(properties, dict)
    for name, value in facts.items():
        if value not in (None, []):
            text = " ".join(value) if isinstance(value, list) else value
            click.echo(f"{name.removesuffix('_ms')}: {text}")
    for name, value in sorted(properties.items()):
        click.echo(f"property {name}: {value}")
    if body is not None:
        click.echo(body)


async def _find(admin: AsyncAdmin, topic: str, place: str) -> MessageExt:
    """A message by an id, or by its place."""
    parts = place.rsplit(":", 2)
    if len(parts) == 3 and all(part.isascii() and part.isdecimal() for part in parts[1:]):
        return await admin.message_at(MessageQueue(topic, parts[0], int(parts[1])), int(parts[2]))
    return await admin.message(topic, place)


@message.command("by-key")
@_topic
@click.argument("key")
@_begin
@_end
@click.option("--count", type=click.IntRange(1, 10_000), default=64, show_default=True)
@cluster_options
@json_option
def by_key(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    key: str,
    begin_ms: int | None,
    end_ms: int | None,
    count: int,
) -> None:
    """Show the newest messages of TOPIC with a KEY, a line each, oldest first."""
    end = INT64_MAX if end_ms is None else end_ms
    found = access.ask(
        lambda admin: admin.messages_by_key(
            topic, key, begin_ms=begin_ms or 0, end_ms=end, max_count=count
        )
    )
    if not found:
        late = "brokers find one about two seconds after the send"
        click.echo(f"no message of {topic} with the key {key} was found; {late}", err=True)
    print_messages(found, as_json)


@message.command("by-time")
@_topic
@click.option(
    "--begin", "begin_ms", type=TimeArgument(), required=True, help="Stored then or later."
)
@_end
@click.option("--count", type=click.IntRange(1, 10_000), default=64, show_default=True)
@cluster_options
@json_option
def by_time(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    begin_ms: int,
    end_ms: int | None,
    count: int,
) -> None:
    """Show the first messages of TOPIC stored from one time up to another, a line each."""
    end = INT64_MAX if end_ms is None else end_ms
    found = access.ask(lambda admin: admin.messages_by_time(topic, begin_ms, end, max_count=count))
    print_messages(found, as_json)


@message.command()
@click.argument("msg_id", metavar="ID")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True)
@cluster_options
@json_option
def trace(access: ClusterAccess, as_json: bool, msg_id: str, trace_topic: str) -> None:
    """Show what producers and consumers with a trace recorded of the message with this ID."""
    found = access.ask(lambda admin: admin.message_trace(msg_id, trace_topic=trace_topic))
    if as_json:
        print_json([one._asdict() for one in found])
    elif found:
        rows = [
            (shown_time(one.at_ms), one.kind, one.group, _outcome(one), one.cost_ms, one.retries)
            for one in found
        ]
        print_table(("time", "what", "group", "outcome", "ms", "retries"), rows)
    else:
        click.echo("nobody with a trace has recorded anything of it")


def _outcome(one: TraceEvent) -> str:
    if one.kind == "handling":
        return "-"
    return one.state or ("ok" if one.is_ok else "failed")


@message.command()
@_topic
@_id
@click.option("--group", help="Have a member of this group handle it now, instead of sending it.")
@click.option("--member", help="With --group: this client id.  [default: the first]")
@yes_option
@cluster_options
@json_option
def resend(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    place: str,
    group: str | None,
    member: str | None,
    yes: bool,
) -> None:
    """Send a copy of the message with this ID to its TOPIC, for all of its groups.

    With --group nothing is sent: one member handles the stored message, and says how that went.
    """
    if member and not group:
        raise click.UsageError("--member goes with --group")
    if group:
        _hand_over(access, topic, place, group, member, as_json=as_json)
        return
    confirm(f"Send a copy of the message {place} to all groups of {topic}?", yes=yes)

    async def work(admin: AsyncAdmin) -> SendResult:
        copy = _copy_of(await _find(admin, topic, place), topic)
        async with AsyncProducer("cometmq-cli", **access.settings()) as producer:
            return await producer.send(copy)

    sent = access.ask(work)
    if as_json:
        print_json({"status": sent.status.name, "msg_id": sent.msg_id})
    else:
        click.echo(f"{sent.status.name} {sent.msg_id}")


def _copy_of(found: MessageExt, topic: str) -> Message:
    """A new message with what a user may say of one."""
    own = {name: text for name, text in found.properties.items() if name not in RESERVED_PROPERTIES}
    return Message(
        topic,
        found.body,
        tags=found.tags,
        keys=found.keys or None,
        properties=own or None,
        sharding_key=found.sharding_key,
        flag=found.flag,
    )


def _hand_over(
    access: ClusterAccess, topic: str, place: str, group: str, member: str | None, *, as_json: bool
) -> None:
    async def work(admin: AsyncAdmin) -> ConsumeMessageDirectlyResult:
        return await admin.hand_to_member(group, await _find(admin, topic, place), member)

    result = access.ask(work)
    if as_json:
        print_json(
            {
                "result": result.consume_result,
                "remark": result.remark,
                "took_ms": result.spent_time_ms,
            }
        )
        return
    remark = f": {result.remark}" if result.remark else ""
    click.echo(f"{result.consume_result} in {result.spent_time_ms} ms{remark}")
