"""What the commands about parked keys and dead letters share: the choice, and the report.

Java: none.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.progress_bars import ProgressBars
from cometmq.cli.time_arguments import TimeArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.parking import ParkedMessage, RedriveReport

F = TypeVar("F", bound="Callable[..., Any]")

_CHOICE = (
    click.option("--key", help="Those of this key."),
    click.option("--message", "msg_id", help="The one with this id."),
    click.option("--reason", help="Those whose reason has this text."),
    click.option("--since", "since_ms", type=TimeArgument(), help="Those from then on."),
    click.option("--until", "until_ms", type=TimeArgument(), help="Those up to then."),
)
rate_option = click.option(
    "--rate", type=click.FloatRange(0), default=0.0, help="Messages a second.  [no limit]"
)
yes_option = click.option("--yes", is_flag=True, help="Do it; without, only say how many.")


def choice_options(command: F) -> F:
    """Add the options that choose messages, given to the command as one dict `chosen`."""

    @functools.wraps(command)
    def with_choice(*args: Any, **kwargs: Any) -> Any:
        names = ("key", "msg_id", "reason", "since_ms", "until_ms")
        chosen = {name: kwargs.pop(name) for name in names}
        given = {name: value for name, value in chosen.items() if value is not None}
        return command(*args, chosen=given, **kwargs)

    made: Any = with_choice
    for option in reversed(_CHOICE):
        made = option(made)
    return made  # type: ignore[no-any-return]


class ShownProgress:
    """Draws a bar on stderr while a command runs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bars = ProgressBars(sys.stderr)

    def __enter__(self) -> Callable[[int, int], None]:
        """Begin to draw; returns what to call with done and total."""
        self._bars.__enter__()
        shown: dict[int, Callable[[int], None]] = {}

        def show(done: int, total: int) -> None:
            if total not in shown:
                shown[total] = self._bars.step(self._name, total)
            shown[total](done)

        return show

    def __exit__(self, *exc: object) -> None:
        """End the drawing."""
        self._bars.__exit__(*exc)


def print_report(report: RedriveReport, verb: str, *, as_json: bool) -> None:
    """Print what was asked for, done and refused; exit code 1 where something was refused."""
    if as_json:
        said = {"asked": report.asked, "done": report.done, "dry_run": report.is_dry_run}
        refused = [{**parked_json(one.message), "why": one.why} for one in report.refused]
        print_json({**said, "refused": refused})
    elif report.is_dry_run:
        click.echo(f"{report.asked:,} messages would be {verb}: --yes does it")
    else:
        click.echo(f"{report.done:,} of {report.asked:,} messages {verb}")
        if report.refused:
            rows = [(one.message.key, one.message.msg_id, one.why) for one in report.refused]
            print_table(("key", "id", "why not"), rows)
    if report.refused:
        click.get_current_context().exit(1)


def parked_json(one: ParkedMessage) -> dict[str, object]:
    """A parked message as JSON."""
    return {
        "key": one.key,
        "msg_id": one.msg_id,
        "topic": one.topic,
        "broker": one.broker_name,
        "queue_id": one.queue_id,
        "offset": one.offset,
        "attempts": one.attempts,
        "reason": one.reason,
        "parked_ms": one.parked_ms,
        "has_failed": one.has_failed,
        "is_repaired": one.repaired_at >= 0,
        "command": one.command,
    }
