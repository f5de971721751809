"""The counts that each stage of the job must produce.

Compares counts; does not take them. Pure. Stored counts are compared without duplicates: an
at-least-once system may store and deliver a message twice, but it never loses or invents one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.demo.flights.events import KINDS, WHOLE_YEAR
from cometmq.demo.flights.processes import concurrent_group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.demo.flights.checks.order_audit import AuditResult
    from cometmq.demo.flights.events import Totals
    from cometmq.demo.flights.processes.aircraft_repairs import AircraftRepairs
    from cometmq.demo.flights.report import JobReport
    from cometmq.demo.flights.spark_tables import (
        DeadLettersTable,
        DelayTables,
        EventsTable,
        JoinedFlights,
        OrderTable,
    )
    from cometmq.spark.tables.backlog import TopicBacklog

AIRPORTS_MISSING = 4
"""Destinations of the whole year that the airports table does not know."""


def check_input(report: JobReport, totals: Totals, *, is_whole: bool, events_written: int) -> None:
    """The input matches the package, and all of it was written for the producers."""
    if is_whole:
        expected = WHOLE_YEAR.as_dict()
        for name, count in totals.as_dict().items():
            report.check(f"input: {name.replace('_', ' ')}", expected[name], count)
    report.check("given to producers", totals.messages, events_written)


def check_sent(report: JobReport, totals: Totals, sent: int, stored: int, unique: int) -> None:
    """Everything was acknowledged, and the broker holds exactly that, plus duplicates."""
    report.check("acknowledged to producers", totals.messages, sent)
    report.check("different messages in the broker's queues", totals.messages, unique)
    report.facts["stored"] = stored
    report.facts["stored_again"] = stored - unique


def check_followed(report: JobReport, totals: Totals, result: AuditResult) -> None:
    """The orderly group handled every message, every aircraft in its order."""
    _check_handled(report, totals, result, "orderly group")
    report.check("orderly group: numbers out of turn", 0, result.out_of_turn)
    report.check("orderly group: handled by two at once", 0, result.overlaps)
    report.check("orderly group: events before their predecessor", 0, result.too_early)
    report.check("orderly group: queues handed over", 1, result.hand_overs, at_least=True)


def check_parked(
    report: JobReport, totals: Totals, result: AuditResult, repairs: AircraftRepairs
) -> None:
    """Each refused message was parked, repaired and handled, with all of its aircraft after it."""
    bad = totals.without_arrival_time
    report.check("parked: messages repaired", bad, len(repairs.repaired))
    report.check("parked: refused at first, then handled", bad, result.repaired)
    report.check("parked: handled before an earlier one was repaired", 0, result.before_repair)
    report.facts["aircraft_parked"] = len(repairs.aircraft)
    report.facts["messages_parked"] = len(repairs.messages)


def check_control(report: JobReport, totals: Totals, result: AuditResult) -> None:
    """The concurrent group handled every message too, but out of order, and the audit saw it."""
    _check_handled(report, totals, result, "concurrent group")
    report.check(
        "concurrent group: violations, which the audit must see",
        concurrent_group.violations_min(result),
        result.violations,
        at_least=True,
    )


def check_events_table(report: JobReport, table: EventsTable, stored: int) -> None:
    """The table has a row for every stored message."""
    report.check("Spark table: rows, repeats included", stored, table.stored)


def check_joins(
    report: JobReport, totals: Totals, joined: JoinedFlights, *, is_whole: bool
) -> None:
    """Without duplicates it equals the input, and a left join adds no row and removes none."""
    for name, rows in joined.rows.items():
        report.check(f"Spark joins: rows {name}", totals.messages, rows)
    expected = counts_by_kind(totals)
    for kind in KINDS:
        report.check(f"Spark joins: {kind}", expected[kind], joined.by_kind.get(kind, 0))
    if is_whole:
        missing = len(joined.airports_missing)
        report.check("Spark joins: destinations without airport", AIRPORTS_MISSING, missing)


def check_delays(report: JobReport, totals: Totals, delays: DelayTables) -> None:
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


def check_backlogs(report: JobReport, backlogs: Iterable[TopicBacklog]) -> None:
    """No group has left anything to do, in its topic or for a retry."""
    for one in backlogs:
        report.check(f"backlog of {one.group}: messages not done", 0, one.lag)
        report.check(f"backlog of {one.group}: waiting for a retry", 0, one.retry_depth)


def check_dead_letters(
    report: JobReport,
    totals: Totals,
    backlogs: Iterable[TopicBacklog],
    table: DeadLettersTable,
    attempts: int,
) -> None:
    """The control has each refused message as a dead letter once, after all its attempts."""
    for group, in_topic in ((one.group, one.dead_letters) for one in backlogs):
        bad = totals.without_arrival_time if group == concurrent_group.GROUP else 0
        report.check(f"dead letters of {group}: in the topic", bad, in_topic)
        report.check(f"dead letters of {group}: rows of the table", bad, table.rows.get(group, 0))
        flights = table.flights.get(group, 0)
        report.check(f"dead letters of {group}: different flights", bad, flights)
        for tried in table.attempts.get(group, []):
            report.check(f"dead letters of {group}: attempts", attempts, tried)


def check_order_table(report: JobReport, totals: Totals, order: OrderTable, stored: int) -> None:
    """As stored, the sequence of every aircraft is unbroken, and lies in one queue."""
    queues, (keys,) = order.found.queues, order.found.keys
    wrong = sum(one.holes + one.repeats for one in queues)
    out_of_turn = (keys.late or 0) + (keys.left_out or 0)
    report.check("Spark order audit: rows, repeats included", stored, sum(q.rows for q in queues))
    report.check("Spark order audit: offsets missing or twice", 0, wrong)
    report.check("Spark order audit: sharding keys", totals.sharding_keys, keys.keys)
    report.check("Spark order audit: different messages", totals.messages, keys.different)
    report.check("Spark order audit: numbers late or left out", 0, out_of_turn)
    report.check("Spark order audit: keys in two queues", 0, keys.scattered)


def counts_by_kind(totals: Totals) -> dict[str, int]:
    """The input's counts by the name of the event."""
    return dict(
        zip(
            KINDS,
            (totals.scheduled, totals.cancelled, totals.departed, totals.arrived),
            strict=True,
        )
    )


def _check_handled(report: JobReport, totals: Totals, result: AuditResult, who: str) -> None:
    report.check(f"{who}: different messages handled", totals.messages, result.unique)
    expected = counts_by_kind(totals)
    for kind in KINDS:
        report.check(f"{who}: {kind}", expected[kind], result.by_kind[kind])
    report.check(f"{who}: refused", totals.without_arrival_time, result.refused)


def _sum(rows: list[dict[str, int]], column: str) -> int:
    return sum(row[column] for row in rows)
