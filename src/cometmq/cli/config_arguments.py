"""Settings of running servers on the command line: chosen by key, changed as KEY=VALUE, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cometmq.cli.printed_columns import print_json
from cometmq.client.admin.nearest_name import nearest
from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping


def chosen(found: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    """The settings of these keys, all without any; SettingsError for one that is not there."""
    for key in keys:
        if key not in found:
            raise SettingsError(f"there is no setting {key}{nearest(key, found)}")
    return {key: found[key] for key in keys} if keys else dict(found)


def settings_to_change(pairs: tuple[str, ...]) -> dict[str, str]:
    """Pairs as settings; a usage error for what is no pair."""
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise click.BadParameter(f"{pair!r}: write KEY=VALUE")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def print_settings(found: Mapping[str, str], *, as_json: bool) -> None:
    """Print settings in the order of their keys, as a file of properties has them."""
    ordered = dict(sorted(found.items()))
    if as_json:
        print_json(ordered)
        return
    for key, value in ordered.items():
        click.echo(f"{key}={value}")
