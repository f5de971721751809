"""The report: passed only when every count is right, and every figure told in each form."""

import json

from cometmq.demo.flights import checks, page
from cometmq.demo.flights.audit import Verdict
from cometmq.demo.flights.events import WHOLE_YEAR
from cometmq.demo.flights.report import Latency, Report, Stage
from cometmq.demo.flights.tables import DeadLetters, Delays, EventsTable, JoinedTable, OrderTable
from cometmq.demo.flights.watch import Sample


def handled(**changes: int) -> Verdict:
    verdict = Verdict(
        unique=1_002_073, refused=458, hand_overs=3, begin_ns=0, end_ns=10**9, **changes
    )
    verdict.by_kind.update(checks.counts_by_kind(WHOLE_YEAR))
    return verdict


def test_a_report_without_checks_has_not_passed():
    assert not Report(messages=0).passed


def test_one_wrong_count_fails_the_report_and_is_named():
    report = Report(messages=3)
    report.check("stored", 3, 3)
    assert report.passed
    report.check("followed", 3, 2)
    assert [check.sentence() for check in report.failed] == ["followed: 2 where 3 must be"]
    assert "WRONG  followed: 2 where 3 must be" in report.lines()


def test_the_whole_year_passes_when_every_stage_has_its_counts():
    report = Report(messages=WHOLE_YEAR.messages)
    checks.check_input(report, WHOLE_YEAR, is_whole=True, spooled=1_002_073)
    checks.check_sent(report, WHOLE_YEAR, 1_002_073, 1_002_100, 1_002_073)
    checks.check_followed(report, WHOLE_YEAR, handled())
    checks.check_control(report, WHOLE_YEAR, handled(out_of_turn=9))
    kinds = checks.counts_by_kind(WHOLE_YEAR)
    table = EventsTable(1_002_100, 1_002_073, kinds, 1.0)
    checks.check_events_table(report, WHOLE_YEAR, table, 1_002_100)
    joined = JoinedTable({"events": 1_002_073, "after airlines": 1_002_073}, list("abcd"), 9, 1.0)
    checks.check_joins(report, WHOLE_YEAR, joined, is_whole=True)
    order = OrderTable(1_002_100, 6_555, 1_002_073, 27, 0, 0, 1.0)
    checks.check_order_table(report, WHOLE_YEAR, order, 1_002_100)
    dead = DeadLetters({"g": 458}, {"g": 458}, {"g": [3]}, [], 1.0)
    checks.check_dead_letters(report, WHOLE_YEAR, {"g": 458}, dead, 3)
    assert report.failed == []
    assert report.facts["stored_again"] == 27


def test_a_control_without_violations_says_that_the_audit_is_broken():
    report = Report(messages=WHOLE_YEAR.messages)
    checks.check_control(report, WHOLE_YEAR, handled())
    assert [check.name for check in report.failed] == [
        "concurrent group: violations, which the audit must see"
    ]


def test_one_dead_letter_too_many_and_one_twice_are_found():
    for rows, flights in ((459, 459), (458, 457), (457, 457)):
        report = Report(messages=WHOLE_YEAR.messages)
        dead = DeadLetters({"g": rows}, {"g": flights}, {"g": [3]}, [], 1.0)
        checks.check_dead_letters(report, WHOLE_YEAR, {"g": rows}, dead, 3)
        assert report.failed


def test_a_message_buried_after_too_few_attempts_is_found():
    report = Report(messages=WHOLE_YEAR.messages)
    dead = DeadLetters({"g": 458}, {"g": 458}, {"g": [2, 3]}, [], 1.0)
    checks.check_dead_letters(report, WHOLE_YEAR, {"g": 458}, dead, 3)
    assert [check.found for check in report.failed] == [2]


def test_the_json_holds_every_figure():
    report = Report(messages=5, memory_peak_mib=12.34, seconds=1.26, page="p.html")
    report.check("sent", 5, 5)
    report.stages.append(Stage("sent", 5, 1, 0.5))
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
    row = {"departed": 2, "arrived": 1, "departure_delay": 3.5, "arrival_delay": None}
    delays = Delays(
        by_hour=[{"hour": 5, **row}],
        by_destination=[{"dest": "X", "destination": "<X>", **row}],
        by_airline=[{"airline": "Air & Sea", **row}],
        by_day=[{"date": "2013-01-01", **row}],
    )
    report = Report(messages=5)
    report.check("sent <all>", 5, 4)
    path = tmp_path / "report.html"
    page.write(
        path,
        report,
        delays=delays,
        queues={0: 3, 1: 2},
        samples=[Sample(1.0, 10.0, {"g": 4}), Sample(2.0, 11.0)],
        moments=[(1.5, "broker killed")],
    )
    text = path.read_text()
    head, *_ = text.partition("<script")
    assert "1 counts are wrong" in text
    assert "sent &lt;all&gt;" in head
    assert "broker killed" in text
    assert "&lt;X&gt;" in text
    for loader in ("<script src", "<link", "<img", "@import"):
        assert loader not in text
