"""The input of each producer process: a text file with one event a line, in sending order.

Divides the events among the producers and defines the layout of a line. Invariant: a sharding key
belongs to exactly one producer, so one file holds all its events in order.
Layout of a line: kind, flight, sharding key, sequence number, body; separated by tabs.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING
from zlib import crc32

from cometmq.demo.flights.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def producer_of(sharding_key: str, producers: int) -> int:
    """Which of `producers` processes sends the events of this key."""
    return crc32(sharding_key.encode()) % producers


def write(events: Iterable[Event], paths: Sequence[Path]) -> list[int]:
    """Divide the events among the files; returns how many each got."""
    counts = [0] * len(paths)
    with ExitStack() as open_files:
        files = [open_files.enter_context(path.open("w", encoding="ascii")) for path in paths]
        for kind, flight_id, key, sequence, body in events:
            owner = producer_of(key, len(files))
            files[owner].write(f"{kind}\t{flight_id}\t{key}\t{sequence}\t{body}\n")
            counts[owner] += 1
    return counts


def read(path: Path) -> Iterator[Event]:
    """The events of one file, one at a time."""
    with path.open(encoding="ascii") as lines:
        for line in lines:
            kind, flight_id, key, sequence, body = line.rstrip("\n").split("\t")
            yield Event(int(kind), flight_id, key, int(sequence), body)
