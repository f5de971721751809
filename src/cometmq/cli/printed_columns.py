"""Results as people and as machines read them: plain columns that can be cut, or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of equal length, the first one the head; columns of numbers end at the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    at_right = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in rows:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, at_right, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with a head."""
    print_columns([head, *([str(cell) for cell in row] for row in rows)])


def print_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print one JSON value on a line of its own, at once."""
    click.echo(json.dumps(value))


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.replace(".", "", 1).lstrip("-").isdecimal()
