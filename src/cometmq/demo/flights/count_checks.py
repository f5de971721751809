"""Which counts must be equal to which: the expectations of the job, stage by stage.

Owns the comparisons; refuses to know how a count was taken. Pure. Stored counts are compared after
repeats were taken off: an at-least-once system may store and deliver a message again, but never
lose one, and never invent one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.demo.flights.concurrent_group import violations_wanted
from cometmq.demo.flights.events import KINDS, WHOLE_YEAR

if TYPE_CHECKING:
    from cometmq.demo.flights.events import Totals
    from cometmq.demo.flights.order_audit import Verdict
    from cometmq.demo.flights.report import Report
    from cometmq.demo.flights.spark_tables import (
        DeadLetters,
        Delays,
        EventsTable,
        JoinedTable,
        OrderTable,
    )

AIRPORTS_MISSING = 4
"""Destinations of the whole year that the airports table does not know."""


def check_input(report: Report, totals: Totals, *, is_whole: bool, spooled: int) -> None:
    """The input is what the package holds, and all of it lies ready for the producers."""
    if is_whole:
        expected = WHOLE_YEAR.as_dict()
        for name, count in totals.as_dict().items():
            report.check(f"input: {name.replace('_', ' ')}", expected[name], count)
    report.check("given to producers", totals.messages, spooled)


def check_sent(report: Report, totals: Totals, sent: int, stored: int, unique: int) -> None:
    """Everything was acknowledged, and the broker's log holds exactly that and the repeats."""
    report.check("acknowledged to producers", totals.messages, sent)
    report.check("different messages in the broker's queues", totals.messages, unique)
    report.facts["stored"] = stored
    report.facts["stored_again"] = stored - unique


def check_followed(report: Report, totals: Totals, verdict: Verdict) -> None:
    """The orderly group handled every message, every aircraft in its order."""
    _check_handled(report, totals, verdict, "orderly group")
    report.check("orderly group: numbers out of turn", 0, verdict.out_of_turn)
    report.check("orderly group: handled by two at once", 0, verdict.overlaps)
    report.check("orderly group: events before their predecessor", 0, verdict.too_early)
    report.check("orderly group: queues handed over", 1, verdict.hand_overs, at_least=True)


def check_control(report: Report, totals: Totals, verdict: Verdict) -> None:
    """The concurrent group handled every message too, but not in order: the audit can see that."""
    _check_handled(report, totals, verdict, "concurrent group")
    report.check(
        "concurrent group: violations, which the audit must see",
        violations_wanted(verdict),
        verdict.violations,
        at_least=True,
    )


def check_events_table(report: Report, table: EventsTable, stored: int) -> None:
    """The table has a row for every stored message."""
    report.check("Spark table: rows, repeats included", stored, table.stored)


def check_joins(report: Report, totals: Totals, joined: JoinedTable, *, is_whole: bool) -> None:
    """Without repeats it is the input, and a left join adds no row and takes none away."""
    for name, rows in joined.rows.items():
        report.check(f"Spark joins: rows {name}", totals.messages, rows)
    expected = counts_by_kind(totals)
    for kind in KINDS:
        report.check(f"Spark joins: {kind}", expected[kind], joined.by_kind.get(kind, 0))
    if is_whole:
        missing = len(joined.airports_missing)
        report.check("Spark joins: destinations without airport", AIRPORTS_MISSING, missing)


def check_delays(report: Report, totals: Totals, delays: Delays) -> None:
    """Every departure and every arrival is in each of the tables of delays."""
    for name, rows in (
        ("hour", delays.by_hour),
        ("origin", delays.by_origin),
        ("destination", delays.by_destination),
        ("airline", delays.by_airline),
        ("day", delays.by_day),
    ):
        report.check(f"delays by {name}: departures", totals.departed, _sum(rows, "departed"))
        report.check(f"delays by {name}: arrivals", totals.arrived, _sum(rows, "arrived"))


def check_dead_letters(
    report: Report, totals: Totals, stored: dict[str, int], table: DeadLetters, attempts: int
) -> None:
    """Each group buried each refused message once, after all its attempts."""
    bad = totals.without_arrival_time
    for group, in_topic in stored.items():
        report.check(f"dead letters of {group}: in the topic", bad, in_topic)
        report.check(f"dead letters of {group}: rows of the table", bad, table.rows.get(group, 0))
        flights = table.flights.get(group, 0)
        report.check(f"dead letters of {group}: different flights", bad, flights)
        for tried in table.attempts.get(group, []):
            report.check(f"dead letters of {group}: attempts", attempts, tried)


def check_order_table(report: Report, totals: Totals, order: OrderTable, stored: int) -> None:
    """As stored, the sequence of every aircraft is unbroken, and lies in one queue."""
    report.check("Spark order audit: rows, repeats included", stored, order.rows)
    report.check("Spark order audit: sharding keys", totals.sharding_keys, order.keys)
    report.check("Spark order audit: different messages", totals.messages, order.unique)
    report.check("Spark order audit: numbers out of turn", 0, order.gaps)
    report.check("Spark order audit: keys in two queues", 0, order.scattered)


def counts_by_kind(totals: Totals) -> dict[str, int]:
    """The input's counts by the name of the event."""
    return dict(
        zip(
            KINDS,
            (totals.scheduled, totals.cancelled, totals.departed, totals.arrived),
            strict=True,
        )
    )


def _check_handled(report: Report, totals: Totals, verdict: Verdict, who: str) -> None:
    report.check(f"{who}: different messages handled", totals.messages, verdict.unique)
    expected = counts_by_kind(totals)
    for kind in KINDS:
        report.check(f"{who}: {kind}", expected[kind], verdict.by_kind[kind])
    report.check(f"{who}: refused", totals.without_arrival_time, verdict.refused)


def _sum(rows: list[dict[str, int]], column: str) -> int:
    return sum(row[column] for row in rows)
