"""The report: passed only when every count is right, and every figure is in each form."""

import json
from dataclasses import replace

import pytest

from cometmq.demo.flights import html_report
from cometmq.demo.flights.checks import count_checks
from cometmq.demo.flights.checks.measurements import Measurements, calm_latencies, report_of
from cometmq.demo.flights.checks.order_audit import AuditResult
from cometmq.demo.flights.checks.sampler import ResourceSample
from cometmq.demo.flights.events import WHOLE_YEAR
from cometmq.demo.flights.processes.concurrent_group import GROUP as CONTROL
from cometmq.demo.flights.report import JobReport, JobStage, Latency
from cometmq.demo.flights.spark_tables import (
    BEFORE_JOINS,
    DeadLettersTable,
    DelayTables,
    EventsTable,
    JoinedFlights,
    OrderTable,
)
from cometmq.spark.tables.backlog import TopicBacklog
from cometmq.spark.tables.stored_order import KeyOrder, QueueOrder, StoredOrder


class Repaired:
    """What the operator says who repaired everything."""

    aircraft = frozenset({"N1", "N2"})
    messages = frozenset((0, at) for at in range(1_000))

    def __init__(self, count: int = 458):
        self.repaired = {(0, at) for at in range(count)}


def handled(**changes: int) -> AuditResult:
    result = AuditResult(
        unique=1_002_073, refused=458, hand_overs=3, begin_ns=0, end_ns=10**9, **changes
    )
    result.by_kind.update(count_checks.counts_by_kind(WHOLE_YEAR))
    return result


ROW = {"departed": 328_521, "arrived": 328_521, "departure_delay": 3.5, "arrival_delay": None}


def joined(before: int, after: int) -> JoinedFlights:
    rows = {BEFORE_JOINS: before, "after airlines": after}
    return JoinedFlights(rows, count_checks.counts_by_kind(WHOLE_YEAR), [*"abcd"], 9, 1.0)


def order(**changes: int) -> OrderTable:
    queue = QueueOrder(
        topic="flights", broker="b", queue_id=0, begin=0, end=1_002_100, rows=1_002_100, holes=0,
        repeats=0, without_key=0,
    )  # fmt: skip
    keys = KeyOrder(
        topic="flights", keys=6_555, scattered=0, numbered=1_002_100, unnumbered=0, late=0,
        resent=27, left_out=0,
    )  # fmt: skip
    of_queue = {name: count for name, count in changes.items() if hasattr(queue, name)}
    of_keys = {name: count for name, count in changes.items() if hasattr(keys, name)}
    return OrderTable(StoredOrder((replace(queue, **of_queue),), (replace(keys, **of_keys),)), 1.0)


def backlog(group: str, **changes: int) -> TopicBacklog:
    done = TopicBacklog(
        group=group, topic="flights", queues=16, lag=0, behind_s=0.0, in_rate=0.0, out_rate=0.0,
        drain_s=0.0, skew=1.0, longest_queue="", retry_depth=0, dead_letters=458,
    )  # fmt: skip
    return replace(done, **changes)


def measured(**changes: object) -> Measurements:
    """A year in which all went well, but for the changes."""
    groups = {"flights-concurrent": 458}
    right = Measurements(
        totals=WHOLE_YEAR,
        is_whole=True,
        events_written=1_002_073,
        sent=[
            {"messages": 1_000_000, "begin_ns": 0, "end_ns": 9 * 10**9},
            {"messages": 2_073, "begin_ns": 10**9, "end_ns": 10 * 10**9},
        ],
        stored={0: 1_000_000, 1: 2_100},
        backlogs=[backlog("flights-orderly", dead_letters=0), backlog("flights-concurrent")],
        orderly=handled(repaired=458),
        repairs=Repaired(),
        concurrent=handled(out_of_turn=9),
        events=EventsTable(1_002_100, 1.0),
        joined=joined(1_002_073, 1_002_073),
        delays=DelayTables(
            by_hour=[{"hour": 5, **ROW}],
            by_origin=[{"origin": "JFK", **ROW}],
            by_destination=[{"dest": "X", "destination": "<X>", **ROW}],
            by_airline=[{"airline": "Air & Sea", **ROW}],
            by_day=[{"date": "2013-01-01", **ROW}],
            by_rain=[{"rain": False, **ROW}, {"rain": True, **ROW}],
        ),
        order=order(),
        dead=DeadLettersTable(groups, groups, {group: [3] for group in groups}, [], 1.0),
        began_s=100.0,
        moments=[(101.5, "broker killed")],
    )
    return replace(right, **changes)


def test_a_report_without_checks_has_not_passed():
    assert not JobReport(messages=0).passed


def test_one_wrong_count_fails_the_report_and_is_named():
    report = JobReport(messages=3)
    report.check("stored", 3, 3)
    assert report.passed
    report.check("followed", 3, 2)
    assert [check.sentence() for check in report.failed] == ["followed: 2, expected 3"]
    assert "WRONG  followed: 2, expected 3" in report.lines()


def test_the_whole_year_passes_when_every_stage_has_its_counts():
    report = report_of(measured())
    assert report.failed == []
    assert report.facts["stored_again"] == 27
    assert report.events == [
        "broker killed, at 2 s",
        "2 aircraft were parked, with 1,000 messages in all, and released after 458 repairs",
    ]
    assert report.stages[0] == JobStage("sending", 1_002_073, 27, 10.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"events_written": 1_002_072},
        {"sent": [{"messages": 1_002_072, "begin_ns": 0, "end_ns": 1}]},
        {"stored": {0: 1_002_101}},
        {"backlogs": [backlog("flights-concurrent", dead_letters=457)]},
        {"backlogs": [backlog("flights-orderly", dead_letters=1)]},
        {"backlogs": [backlog("flights-concurrent", lag=1)]},
        {"backlogs": [backlog("flights-concurrent", retry_depth=1)]},
        {"orderly": handled(repaired=458, out_of_turn=1)},
        {"orderly": handled(repaired=458, overlaps=1)},
        {"orderly": handled(repaired=458, too_early=1)},
        {"orderly": handled(repaired=458, before_repair=1)},
        {"orderly": handled(repaired=457)},
        {"orderly": replace(handled(repaired=458), unique=1_002_072)},
        {"orderly": replace(handled(repaired=458), refused=459)},
        {"orderly": replace(handled(repaired=458), hand_overs=0)},
        {"repairs": Repaired(457)},
        {"concurrent": handled()},
        {"joined": joined(1_002_073, 1_002_074)},
        {"joined": joined(1_002_072, 1_002_073)},
        {"events": EventsTable(1_002_099, 1.0)},
        {"joined": replace(joined(1_002_073, 1_002_073), airports_missing=[*"abcde"])},
        {"joined": replace(joined(1_002_073, 1_002_073), by_kind={"SCHEDULED": 336_776})},
        {"order": order(late=1)},
        {"order": order(left_out=1)},
        {"order": order(scattered=1)},
        {"order": order(keys=6_554)},
        {"order": order(resent=28)},
        {"order": order(holes=1)},
        {"order": order(repeats=1)},
        {"order": order(rows=1_002_099)},
    ],
)
def test_one_message_too_few_or_too_many_at_any_stage_fails_the_job(changes):
    assert not report_of(measured(**changes)).passed


def test_latencies_in_the_wake_of_a_kill_can_be_left_out():
    result = handled()
    for at_s, latency_ms in ((9, 1), (10, 900), (24, 800), (26, 2)):
        result.begins_ns.append(at_s * 10**9)
        result.latencies_ms.append(latency_ms)
    assert calm_latencies(result, [10.0]) == [1, 2]


def test_a_control_without_violations_says_that_the_audit_is_broken():
    report = JobReport(messages=WHOLE_YEAR.messages)
    count_checks.check_control(report, WHOLE_YEAR, handled())
    assert [check.name for check in report.failed] == [
        "concurrent group: violations, which the audit must see"
    ]


def test_one_dead_letter_too_many_and_one_twice_are_found():
    for rows, flights in ((459, 459), (458, 457), (457, 457)):
        report = JobReport(messages=WHOLE_YEAR.messages)
        dead = DeadLettersTable({CONTROL: rows}, {CONTROL: flights}, {CONTROL: [3]}, [], 1.0)
        count_checks.check_dead_letters(
            report, WHOLE_YEAR, [backlog(CONTROL, dead_letters=rows)], dead, 3
        )
        assert report.failed


def test_a_dead_letter_after_too_few_attempts_is_found():
    report = JobReport(messages=WHOLE_YEAR.messages)
    dead = DeadLettersTable({CONTROL: 458}, {CONTROL: 458}, {CONTROL: [2, 3]}, [], 1.0)
    count_checks.check_dead_letters(report, WHOLE_YEAR, [backlog(CONTROL)], dead, 3)
    assert [check.found for check in report.failed] == [2]


def test_the_json_holds_every_figure():
    report = JobReport(messages=5, memory_peak_mib=12.34, seconds=1.26, page="p.html")
    report.check("sent", 5, 5)
    report.stages.append(JobStage("sent", 5, 1, 0.5))
    report.latencies.append(Latency("orderly", 3, 9, 5))
    report.facts["stored"] = 6
    found = json.loads(json.dumps(report.as_json()))
    assert found["passed"] is True
    assert found["stages"] == [
        {"name": "sent", "messages": 5, "repeats": 1, "seconds": 0.5, "per_second": 10}
    ]
    assert found["latencies"] == [{"name": "orderly", "p50_ms": 3, "p99_ms": 9, "count": 5}]
    assert (found["stored"], found["seconds"], found["page"]) == (6, 1.3, "p.html")


def test_the_page_is_one_file_that_asks_nobody_on_the_network(tmp_path):
    found = measured(moments=[(101.5, "broker killed")])
    report = report_of(found)
    report.check("sent <all>", 5, 4)
    path = tmp_path / "report.html"
    html_report.write(
        path, report, found, [ResourceSample(101.0, 10.0, {"g": 4}), ResourceSample(102.0, 11.0)]
    )
    text = path.read_text()
    head, *_ = text.partition("<script")
    assert "1 counts are wrong" in text
    assert "sent &lt;all&gt;" in head
    assert "broker killed" in text
    assert "&lt;X&gt;" in text
    assert '"dry","rain"' in text
    for loader in ("<script src", "<link", "<img", "@import"):
        assert loader not in text
