"""Everything the job measured, and the report computed from it: checks, stages, latencies.

Pure; the measuring is done elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.demo.flights.checks import count_checks
from cometmq.demo.flights.checks.order_audit import percentile
from cometmq.demo.flights.processes import concurrent_group, consumer_process, orderly_group
from cometmq.demo.flights.report import JobReport, JobStage, Latency
from cometmq.demo.flights.spark_tables import BEFORE_JOINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.demo.flights.checks.order_audit import AuditResult
    from cometmq.demo.flights.events import Totals
    from cometmq.demo.flights.processes.aircraft_repairs import AircraftRepairs
    from cometmq.demo.flights.spark_tables import (
        DeadLettersTable,
        DelayTables,
        EventsTable,
        JoinedFlights,
        OrderTable,
    )
    from cometmq.spark.tables.backlog import TopicBacklog

CALM_AFTER_S = 15.0
"""How long a kill is assumed to affect latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """One run. Moments are seconds on the monotonic clock."""

    totals: Totals
    is_whole: bool
    events_written: int
    sent: list[dict[str, int]]
    """The summary of each producer: messages, begin_ns, end_ns."""
    stored: dict[int, int]
    """Messages in the broker's queues, by queue id."""
    backlogs: list[TopicBacklog]
    """Of both groups, at the end."""
    orderly: AuditResult
    repairs: AircraftRepairs
    concurrent: AuditResult
    events: EventsTable
    joined: JoinedFlights
    delays: DelayTables
    order: OrderTable
    dead: DeadLettersTable
    began_s: float
    moments: list[tuple[float, str]]


def report_of(found: Measurements) -> JobReport:
    """The report of one run."""
    report = JobReport(messages=found.totals.messages)
    _add_checks(report, found)
    _add_stages(report, found)
    orderly = found.orderly
    report.latencies = [
        _latency("producer to orderly handler", orderly.latencies_ms),
        _latency(
            f"the same without {CALM_AFTER_S:.0f} s after each kill",
            calm_latencies(orderly, [at_s for at_s, _ in found.moments]),
        ),
    ]
    parked = found.repairs
    report.events = [
        *(f"{what}, at {at_s - found.began_s:.0f} s" for at_s, what in found.moments),
        f"{len(parked.aircraft):,} aircraft were parked, with {len(parked.messages):,} messages "
        f"in all, and released after {len(parked.repaired):,} repairs",
    ]
    report.facts |= {
        "hand_overs": orderly.hand_overs,
        "order_examples": orderly.examples,
        "control_violations": found.concurrent.violations,
        "control_examples": found.concurrent.examples,
        "airports_missing": found.joined.airports_missing,
        "without_weather": found.joined.without_weather,
        "dead_letters": found.dead.examples,
    }
    return report


def calm_latencies(result: AuditResult, kills_s: Sequence[float]) -> list[int]:
    """The latencies of messages that were not handled within `CALM_AFTER_S` of a kill."""
    wakes = [(int(at_s * 1e9), int((at_s + CALM_AFTER_S) * 1e9)) for at_s in kills_s]
    return [
        latency_ms
        for latency_ms, at_ns in zip(result.latencies_ms, result.begins_ns, strict=True)
        if not any(begin <= at_ns <= end for begin, end in wakes)
    ]


def _add_checks(report: JobReport, found: Measurements) -> None:
    totals, stored = found.totals, sum(found.stored.values())
    is_whole = found.is_whole
    count_checks.check_input(report, totals, is_whole=is_whole, events_written=found.events_written)
    sent = sum(one["messages"] for one in found.sent)
    count_checks.check_sent(report, totals, sent, stored, found.joined.rows[BEFORE_JOINS])
    count_checks.check_followed(report, totals, found.orderly)
    count_checks.check_parked(report, totals, found.orderly, found.repairs)
    count_checks.check_control(report, totals, found.concurrent)
    count_checks.check_backlogs(report, found.backlogs)
    count_checks.check_dead_letters(
        report, totals, found.backlogs, found.dead, consumer_process.ATTEMPTS
    )
    count_checks.check_events_table(report, found.events, stored)
    count_checks.check_joins(report, totals, found.joined, is_whole=is_whole)
    count_checks.check_delays(report, totals, found.delays)
    count_checks.check_order_table(report, totals, found.order, stored)


def _add_stages(report: JobReport, found: Measurements) -> None:
    events, joined, order, dead = found.events, found.joined, found.order, found.dead
    began = min(one["begin_ns"] for one in found.sent)
    ended = max(one["end_ns"] for one in found.sent)
    unique, (keys,) = joined.rows[BEFORE_JOINS], order.found.keys
    again = sum(found.stored.values()) - unique
    report.stages = [
        JobStage(
            "sending", sum(one["messages"] for one in found.sent), again, (ended - began) / 1e9
        ),
        _handling(f"group {orderly_group.GROUP}", found.orderly),
        _handling(f"group {concurrent_group.GROUP}", found.concurrent),
        JobStage("Spark: topic to Parquet by day", unique, again, events.seconds),
        JobStage("Spark: three joins and write", unique, 0, joined.seconds),
        JobStage("Spark: audit of the order", keys.different, keys.resent or 0, order.seconds),
        JobStage("Spark: dead letters to a table", sum(dead.rows.values()), 0, dead.seconds),
    ]


def _handling(name: str, result: AuditResult) -> JobStage:
    return JobStage(name, result.unique, result.repeats, result.seconds)


def _latency(name: str, latencies_ms: Sequence[int]) -> Latency:
    ordered = sorted(latencies_ms)
    return Latency(name, percentile(ordered, 0.5), percentile(ordered, 0.99), len(ordered))
