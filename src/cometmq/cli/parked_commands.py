"""The commands about parked keys: list, show, release, redrive, drop, repair. Java: none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.redrive_options import (
    ShownProgress,
    choice_options,
    parked_json,
    print_report,
    rate_option,
    yes_option,
)
from cometmq.cli.shared_options import json_option
from cometmq.cli.shown_values import message_json, shown_body, shown_number, shown_time
from cometmq.model.parking import RedriveReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.client.admin.async_admin import AsyncAdmin
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import ParkedMessage

T = TypeVar("T")
_wait = click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=60.0, help="Seconds.", show_default=True
)


@click.group(cls=CommandGroup)
def parked() -> None:
    """Look at parked keys (OnFailure.park), and let them go on, in order."""


@parked.command("list")
@click.argument("group")
@choice_options
@cluster_options
@json_option
def list_keys(access: ClusterAccess, as_json: bool, group: str, chosen: dict[str, Any]) -> None:
    """List the parked keys of a GROUP: how many messages each has, since when, and why."""
    found = access.ask(_of_known(group, lambda admin: admin.parked(group, **chosen)))
    by_key: dict[tuple[str, str], list[ParkedMessage]] = {}
    for one in found:
        by_key.setdefault((one.topic, one.key), []).append(one)
    if as_json:
        print_json([{**parked_json(own[0]), "messages": len(own)} for own in by_key.values()])
        return
    rows = [
        (
            key,
            topic,
            shown_number(len(own)),
            shown_time(own[0].parked_ms),
            own[0].command or "-",
            own[0].reason,
        )
        for (topic, key), own in by_key.items()
    ]
    print_table(("key", "topic", "messages", "since", "command", "reason"), rows)


@parked.command()
@click.argument("group")
@choice_options
@cluster_options
@json_option
def show(access: ClusterAccess, as_json: bool, group: str, chosen: dict[str, Any]) -> None:
    """Show the parked messages of a GROUP, those of a key in their order."""

    async def work(admin: AsyncAdmin) -> list[tuple[ParkedMessage, MessageExt]]:
        found = await admin.parked(group, **chosen)
        return [(one, await admin.parked_message(group, one)) for one in found]

    found = access.ask(_of_known(group, work))
    if as_json:
        print_json([{**message_json(message), **parked_json(one)} for one, message in found])
        return
    rows = [
        (
            one.key,
            shown_time(one.parked_ms),
            one.msg_id,
            str(one.attempts),
            one.reason,
            shown_body(message.body),
        )
        for one, message in found
    ]
    print_table(("key", "since", "id", "attempts", "reason", "body"), rows)


@parked.command()
@click.argument("group")
@choice_options
@rate_option
@yes_option
@_wait
@cluster_options
@json_option
def release(
    access: ClusterAccess,
    as_json: bool,
    group: str,
    chosen: dict[str, Any],
    rate: float,
    yes: bool,
    wait_s: float,
) -> None:
    """Give parked keys back to the handler of their GROUP, in order; other groups see nothing.

    A key that has a chosen message goes as a whole. Members do it: one has to run.
    """

    async def work(admin: AsyncAdmin) -> RedriveReport:
        with ShownProgress("messages") as show:
            return await admin.release_parked(
                group, **chosen, rate=rate, dry_run=not yes, wait_s=wait_s, progress=show
            )

    print_report(access.ask(_of_known(group, work)), "released", as_json=as_json)


@parked.command()
@click.argument("group")
@click.option("--to", help="The topic to send to.  [where each came from]")
@choice_options
@rate_option
@yes_option
@_wait
@cluster_options
@json_option
def redrive(
    access: ClusterAccess,
    as_json: bool,
    group: str,
    to: str | None,
    chosen: dict[str, Any],
    rate: float,
    yes: bool,
    wait_s: float,
) -> None:
    """Send parked keys of a GROUP to their topics again, in order, for all groups."""

    async def work(admin: AsyncAdmin) -> RedriveReport:
        with ShownProgress("messages") as show:
            return await admin.redrive_parked(
                group, to=to, **chosen, rate=rate, dry_run=not yes, wait_s=wait_s, progress=show
            )

    print_report(access.ask(_of_known(group, work)), "sent", as_json=as_json)


@parked.command()
@click.argument("group")
@choice_options
@yes_option
@cluster_options
@json_option
def drop(
    access: ClusterAccess, as_json: bool, group: str, chosen: dict[str, Any], yes: bool
) -> None:
    """Let parked messages of a GROUP count as done; no handler gets them."""

    async def work(admin: AsyncAdmin) -> RedriveReport:
        return await admin.drop_parked(group, **chosen, dry_run=not yes)

    print_report(access.ask(_of_known(group, work)), "dropped", as_json=as_json)


def _of_known(
    group: str, work: Callable[[AsyncAdmin], Awaitable[T]]
) -> Callable[[AsyncAdmin], Awaitable[T]]:
    """The work; where it finds nothing and no broker knows the group, GroupNotFound.

    What a group that was deleted has parked is still found.
    """

    async def asked(admin: AsyncAdmin) -> T:
        found = await work(admin)
        if not (found.asked if isinstance(found, RedriveReport) else found):
            await admin.group_config(group)
        return found

    return asked
