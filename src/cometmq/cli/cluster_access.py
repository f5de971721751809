"""What the commands that ask a running cluster share: its options, an admin, and how they ask back.

A command takes `@cluster_options` and gets `access`. Knows no command.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import namesrv_option
from cometmq.client.admin.async_admin import AsyncAdmin
from cometmq.spark.connection_security import SECURITY_OPTIONS, explained, security_of
from cometmq.spark.option_reader import OptionReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

from cometmq.errors import BrokerError

T = TypeVar("T")


class ClusterAccess(NamedTuple):
    """Which cluster a command asks, and who it says that it is."""

    namesrv: str
    options: Mapping[str, str]

    def settings(self) -> dict[str, Any]:
        """The same as settings of a client."""
        security = security_of(OptionReader(self.options, SECURITY_OPTIONS)).client_settings()
        return {"namesrv": self.namesrv, **security}

    def ask(self, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """Run the work with a started admin, on a loop of its own, and return its result."""

        async def asked() -> T:
            async with AsyncAdmin(**self.settings()) as admin:
                return await work(admin)

        try:
            return asyncio.run(asked())
        except BrokerError as error:
            raise explained(error) from error


def cluster_options(command: Any) -> Any:
    """Give a command the options of a connection, as the argument `access`."""

    def called(*, namesrv: str, options: Mapping[str, str], **rest: Any) -> Any:
        return command(access=ClusterAccess(namesrv, options), **rest)

    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return namesrv_option(security_options(called))


yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal; without one, refuse unless `--yes` was given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} --yes does it; nothing was changed")
    click.confirm(question, abort=True, err=True)
