"""The flights job from input to report: the order of its steps and what runs beside what.

Owns the order and the cleaning up; refuses to know how a step does its work. Invariant: however it
ends, every child process is gone and Spark is stopped.

  read flights -> events -> one file a producer          | Spark's JVM starts
  producers -> broker -> orderly group, with two kills
  concurrent group | Spark: table, joins, delays, order  | audit of the orderly group
  Spark: dead letters of both groups                     | audit of the concurrent group
  report and page
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.demo.flights import concurrent_group, event_files, html_report, orderly_group
from cometmq.demo.flights.broker_queries import Gauge
from cometmq.demo.flights.dataset import read_flights
from cometmq.demo.flights.events import Totals, events_of, first_flights, require_whole, totals_of
from cometmq.demo.flights.job_processes import TOPIC, Processes
from cometmq.demo.flights.measurements import Findings, report_of
from cometmq.demo.flights.observations import in_order_of_time
from cometmq.demo.flights.order_audit import Audit, Verdict
from cometmq.demo.flights.sampler import Watch
from cometmq.demo.flights.spark_tables import Tables, in_one_sentence
from cometmq.model.topic import dlq_topic_of

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from cometmq.demo.flights.progress import Progress
    from cometmq.demo.flights.report import Report

GROUPS = (orderly_group.GROUP, concurrent_group.GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the job is told."""

    directory: Path
    messages: int | None = None
    """About the first so many messages; None is the whole year."""
    cores: int = 2
    heap_mb: int = 1024


def run(settings: Settings, progress: Progress) -> Report:
    """Do the whole job; returns its report, the page and its JSON form lie in the directory.

    Raises CometError when something keeps the job from going on; a wrong count does not.
    """
    began_s, directory = time.monotonic(), settings.directory
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(2, "flights"))
        processes = stack.enter_context(Processes(directory))
        gauge = stack.enter_context(Gauge(processes.broker.namesrv))
        watch = stack.enter_context(
            Watch(lambda: {group: gauge.lag(group, TOPIC) for group in GROUPS})
        )
        spark = threads.submit(_start_spark, settings, processes.broker.namesrv)
        stack.callback(_stop_spark, spark)
        work = _Work(settings, progress, processes, gauge, threads)
        with in_one_sentence():
            found = work.find(spark, began_s)
        report = report_of(found)
        report.memory_peak_mib = watch.memory_peak_mib
        report.seconds = time.monotonic() - began_s
        _write(directory, report, found, watch)
    return report


class _Work:
    """The steps of one run, in order; everything they need is there already."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        processes: Processes,
        gauge: Gauge,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._settings, self._progress = settings, progress
        self._processes, self._gauge, self._threads = processes, gauge, threads

    def find(self, spark: Future[Tables], began_s: float) -> Findings:
        """Do everything that is to be measured."""
        processes, gauge, progress = self._processes, self._gauge, self._progress
        totals, spooled = self._prepare()
        messages = totals.messages
        moments = orderly_group.send_and_follow(processes, gauge, messages, progress)
        followed = self._audit(orderly_group.GROUP)
        concurrent_group.begin(processes, messages)
        tables = spark.result()
        tell = progress.step("Spark: events to a table by day", messages)
        events = tables.write_events(TOPIC, tell)
        tell(messages)
        tell = progress.step("Spark: joins with airlines, airports, weather", 0)
        joined, delays = tables.join(), tables.delays()
        tell(messages)
        tell = progress.step("Spark: order of every aircraft", messages)
        order = tables.audit_order(TOPIC, tell)
        tell(messages)
        bad = totals.without_arrival_time
        concurrent_group.finish(processes, gauge, TOPIC, messages, bad, progress)
        controlled = self._audit(concurrent_group.GROUP)
        tell = progress.step("Spark: dead letters of both groups", 2 * bad)
        dead = tables.write_dead_letters({group: dlq_topic_of(group) for group in GROUPS}, tell)
        tell(2 * bad)
        return Findings(
            totals=totals,
            is_whole=self._settings.messages is None,
            spooled=spooled,
            sent=processes.summaries(),
            stored=gauge.stored(TOPIC),
            buried={group: sum(gauge.stored(dlq_topic_of(group)).values()) for group in GROUPS},
            followed=followed.result(),
            controlled=controlled.result(),
            events=events,
            joined=joined,
            delays=delays,
            order=order,
            dead=dead,
            began_s=began_s,
            moments=moments,
        )

    def _prepare(self) -> tuple[Totals, int]:
        """Read the input, count it, write each producer's file; the counts, and events written."""
        tell = self._progress.step("reading the flights", 0)
        flights = read_flights()
        if self._settings.messages is None:
            require_whole(totals_of(flights))
        else:
            flights = first_flights(flights, self._settings.messages)
        spooled = sum(event_files.write(events_of(flights), self._processes.spools))
        tell(spooled)
        return totals_of(flights), spooled

    def _audit(self, group: str) -> Future[Verdict]:
        journals = self._processes.journals(group)
        return self._threads.submit(lambda: Audit().feed(in_order_of_time(journals)))


def _start_spark(settings: Settings, namesrv: str) -> Tables:
    return Tables(
        settings.directory / "tables", namesrv, cores=settings.cores, heap_mb=settings.heap_mb
    )


def _stop_spark(spark: Future[Tables]) -> None:
    """Stop Spark, also when it is only just starting; one that never started needs nothing."""
    wait([spark])
    if spark.exception() is None:
        spark.result().stop()


def _write(directory: Path, report: Report, found: Findings, watch: Watch) -> None:
    path = directory / "report.html"
    report.page = str(path)
    html_report.write(path, report, found, watch.samples)
    path.with_suffix(".json").write_text(json.dumps(report.as_json(), indent=1))
