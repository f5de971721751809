"""The commands that send to topics and read them: send, peek, tail.

Nobody's offsets move. Java: mqadmin sendMessage, checkMsgSendRT, printMsg, printMsgByQueue,
consumeMessage
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.late_progress import LateProgress
from cometmq.cli.printed_columns import print_json, print_json_line
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import message_json, message_line
from cometmq.cli.time_arguments import TimeArgument
from cometmq.client.producer.async_producer import AsyncProducer
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.message import MessageExt
    from cometmq.model.results import SendResult

_GROUP = "cometmq-cli"
_BLOCK_S = 10.0


class QueueArgument(click.ParamType):  # type: ignore[type-arg]
    """A queue of a topic as BROKER:ID."""

    name = "BROKER:ID"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Read a broker's name and a queue's id; a usage error for anything else."""
        if isinstance(value, tuple):
            return value
        broker, _, number = str(value).rpartition(":")
        if not (broker and number.isascii() and number.isdecimal() and len(number) < 7):
            self.fail(f"{value!r} is no queue: write BROKER:ID, as in broker-a:0", param, ctx)
        return broker, int(number)


_queue = click.option("--queue", type=QueueArgument(), help="Only this queue.")


@click.command()
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--tag", help="Its tag.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option("--sharding-key", help="Keeps messages of one key in one queue, in order.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="May be repeated."
)
@click.option("--delay-level", type=click.IntRange(0), default=0, help="Held back so long.")
@click.option("--queue", type=QueueArgument(), help="To this queue.")
@click.option("--count", type=click.IntRange(1), default=1, help="Send it so many times.")
@cluster_options
@json_option
def send(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    body: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    sharding_key: str | None,
    properties: tuple[str, ...],
    delay_level: int,
    queue: tuple[str, int] | None,
    count: int,
) -> None:
    """Send BODY to TOPIC, or what stdin has; a topic that does not exist is refused.

    Prints where each message lies, and how long its send took in ms.
    """
    content = sys.stdin.buffer.read() if body is None else body.encode()
    message = Message(
        topic,
        content,
        tags=tag,
        keys=keys or None,
        sharding_key=sharding_key,
        properties=_pairs(properties),
        delay_level=delay_level,
    )
    place = None if queue is None else MessageQueue(topic, *queue)

    async def work(admin: AsyncAdmin) -> list[tuple[SendResult, float]]:
        await admin.topic_route(topic)
        async with AsyncProducer(_GROUP, **access.settings()) as producer:
            with LateProgress("messages", count) as progress:
                return [await _sent(producer, message, place, progress) for _ in range(count)]

    results = access.ask(work)
    if as_json:
        print_json([_sent_json(result, ms) for result, ms in results])
        return
    for result, ms in results:
        place_text = f"{result.queue.broker_name}:{result.queue.queue_id}:{result.queue_offset}"
        click.echo(f"{result.status.name} {place_text} {result.msg_id} {ms:.1f} ms")


async def _sent(
    producer: AsyncProducer, message: Message, queue: MessageQueue | None, progress: LateProgress
) -> tuple[SendResult, float]:
    begun = asyncio.get_running_loop().time()
    result = await producer.send(message, queue=queue)
    progress.step()
    return result, (asyncio.get_running_loop().time() - begun) * 1000


def _sent_json(result: SendResult, ms: float) -> dict[str, object]:
    return {
        "status": result.status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "offset": result.queue_offset,
        "took_ms": round(ms, 3),
    }


def _pairs(texts: tuple[str, ...]) -> dict[str, str] | None:
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint="--property")
    return {name: value for name, _, value in (text.partition("=") for text in texts)} or None


@click.command()
@click.argument("topic")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--oldest", is_flag=True, help="The oldest instead of the newest.")
@_queue
@cluster_options
@json_option
def peek(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    count: int,
    oldest: bool,
    queue: tuple[str, int] | None,
) -> None:
    """Show the newest messages of a TOPIC, a line each."""
    place = None if queue is None else MessageQueue(topic, *queue)
    print_messages(
        access.ask(lambda admin: admin.peek(topic, count, oldest=oldest, queue=place)), as_json
    )


def print_messages(messages: list[MessageExt], as_json: bool) -> None:
    """Print messages, a line each, or as one JSON list."""
    if as_json:
        print_json([message_json(one) for one in messages])
        return
    for one in messages:
        click.echo(message_line(one))


@click.command()
@click.argument("topic")
@click.option(
    "--since", "since_ms", type=TimeArgument(), help="Begin with what was stored then.  [now]"
)
@click.option("--oldest", is_flag=True, help="Begin with the oldest message.")
@click.option("--count", type=click.IntRange(1), help="End after so many.")
@_queue
@cluster_options
@json_option
def tail(
    access: ClusterAccess,
    as_json: bool,
    topic: str,
    since_ms: int | None,
    oldest: bool,
    count: int | None,
    queue: tuple[str, int] | None,
) -> None:
    """Show the messages of a TOPIC as they arrive, until Ctrl-C. With --json a line is one object.

    Queues that the topic gets meanwhile are not read.
    """
    if oldest and since_ms is not None:
        raise click.UsageError("--since and --oldest exclude each other")
    place = None if queue is None else MessageQueue(topic, *queue)

    async def work(admin: AsyncAdmin) -> None:
        begins = await _begins(admin, topic, place, since_ms, oldest=oldest)
        left = count

        def show(message: MessageExt) -> bool:
            nonlocal left
            if left == 0:
                return False
            if as_json:
                print_json_line(message_json(message))
            else:
                click.echo(message_line(message))
            left = None if left is None else left - 1
            return left != 0

        await _follow(admin, begins, show)

    access.ask(work)


async def _begins(
    admin: AsyncAdmin,
    topic: str,
    queue: MessageQueue | None,
    since_ms: int | None,
    *,
    oldest: bool,
) -> dict[MessageQueue, int]:
    """The offset at which the tail of each queue begins."""
    if queue is not None:
        await admin.pull(queue, 0, 1)  # an error where there is none
    bounds = await admin.topic_stats(topic)
    if since_ms is not None:
        found = await admin.offsets_at(topic, since_ms)
    else:
        end = "min_offset" if oldest else "max_offset"
        found = {one: getattr(bound, end) for one, bound in bounds.items()}
    return {one: at for one, at in found.items() if queue in (None, one)}


async def _follow(
    admin: AsyncAdmin, begins: dict[MessageQueue, int], show: Callable[[MessageExt], bool]
) -> None:
    """Show the messages of these queues as they come, until `show` returns False."""

    async def follow(queue: MessageQueue, offset: int) -> None:
        while True:
            found = await admin.pull(queue, offset, block_s=_BLOCK_S)
            if not all(map(show, found.messages)):
                return
            offset = found.next_offset

    followers = [asyncio.ensure_future(follow(*each)) for each in begins.items()]
    try:
        done, _ = await asyncio.wait(followers, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in followers:
            one.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
