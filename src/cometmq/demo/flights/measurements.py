"""Everything the job measured, and the report that follows from it.

Owns the way from measurements to checks, stages and latencies; refuses to measure. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.demo.flights import concurrent_group, consumer_process, count_checks, orderly_group
from cometmq.demo.flights.order_audit import percentile
from cometmq.demo.flights.report import Latency, Report, Stage
from cometmq.demo.flights.spark_tables import BEFORE_JOINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.demo.flights.events import Totals
    from cometmq.demo.flights.order_audit import Verdict
    from cometmq.demo.flights.spark_tables import (
        DeadLetters,
        Delays,
        EventsTable,
        JoinedTable,
        OrderTable,
    )

CALM_AFTER_S = 15.0
"""So long after a kill its effect on latency is taken to last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One run. Moments are seconds on the monotonic clock."""

    totals: Totals
    is_whole: bool
    spooled: int
    sent: list[dict[str, int]]
    """What each producer said at its end: messages, begin_ns, end_ns."""
    stored: dict[int, int]
    """Messages in the broker's queues, by queue id."""
    buried: dict[str, int]
    """Messages in the dead-letter topics, by group."""
    followed: Verdict
    controlled: Verdict
    events: EventsTable
    joined: JoinedTable
    delays: Delays
    order: OrderTable
    dead: DeadLetters
    began_s: float
    moments: list[tuple[float, str]]


def report_of(found: Findings) -> Report:
    """Judge one run."""
    report = Report(messages=found.totals.messages)
    _add_checks(report, found)
    _add_stages(report, found)
    followed = found.followed
    report.latencies = [
        _latency("producer to orderly handler", followed.latencies_ms),
        _latency(
            f"the same without {CALM_AFTER_S:.0f} s after each kill",
            calm_latencies(followed, [at_s for at_s, _ in found.moments]),
        ),
    ]
    report.events = [f"{what}, at {at_s - found.began_s:.0f} s" for at_s, what in found.moments]
    report.facts |= {
        "hand_overs": followed.hand_overs,
        "order_examples": followed.examples,
        "control_violations": found.controlled.violations,
        "control_examples": found.controlled.examples,
        "airports_missing": found.joined.airports_missing,
        "without_weather": found.joined.without_weather,
        "dead_letters": found.dead.examples,
    }
    return report


def calm_latencies(verdict: Verdict, kills_s: Sequence[float]) -> list[int]:
    """The latencies of messages handled in no kill's wake."""
    wakes = [(int(at_s * 1e9), int((at_s + CALM_AFTER_S) * 1e9)) for at_s in kills_s]
    return [
        latency_ms
        for latency_ms, at_ns in zip(verdict.latencies_ms, verdict.begins_ns, strict=True)
        if not any(begin <= at_ns <= end for begin, end in wakes)
    ]


def _add_checks(report: Report, found: Findings) -> None:
    totals, stored = found.totals, sum(found.stored.values())
    is_whole = found.is_whole
    count_checks.check_input(report, totals, is_whole=is_whole, spooled=found.spooled)
    sent = sum(one["messages"] for one in found.sent)
    count_checks.check_sent(report, totals, sent, stored, found.joined.rows[BEFORE_JOINS])
    count_checks.check_followed(report, totals, found.followed)
    count_checks.check_control(report, totals, found.controlled)
    count_checks.check_dead_letters(
        report, totals, found.buried, found.dead, consumer_process.ATTEMPTS
    )
    count_checks.check_events_table(report, found.events, stored)
    count_checks.check_joins(report, totals, found.joined, is_whole=is_whole)
    count_checks.check_delays(report, totals, found.delays)
    count_checks.check_order_table(report, totals, found.order, stored)


def _add_stages(report: Report, found: Findings) -> None:
    events, joined, order, dead = found.events, found.joined, found.order, found.dead
    began = min(one["begin_ns"] for one in found.sent)
    ended = max(one["end_ns"] for one in found.sent)
    unique = joined.rows[BEFORE_JOINS]
    again = sum(found.stored.values()) - unique
    report.stages = [
        Stage("sending", sum(one["messages"] for one in found.sent), again, (ended - began) / 1e9),
        _handling(f"group {orderly_group.GROUP}", found.followed),
        _handling(f"group {concurrent_group.GROUP}", found.controlled),
        Stage("Spark: topic to Parquet by day", unique, again, events.seconds),
        Stage("Spark: three joins and write", unique, 0, joined.seconds),
        Stage("Spark: audit of the order", order.unique, order.repeats, order.seconds),
        Stage("Spark: dead letters to a table", sum(dead.rows.values()), 0, dead.seconds),
    ]


def _handling(name: str, verdict: Verdict) -> Stage:
    return Stage(name, verdict.unique, verdict.repeats, verdict.seconds)


def _latency(name: str, latencies_ms: Sequence[int]) -> Latency:
    ordered = sorted(latencies_ms)
    return Latency(name, percentile(ordered, 0.5), percentile(ordered, 0.99), len(ordered))
