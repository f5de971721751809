"""The flights job from input to report: the order of its steps, and which of them overlap.

Owns the order and the cleanup; does not know how a step works. Invariant: however the job ends,
every child process is gone and Spark is stopped.

  read flights -> events -> one file a producer          | Spark's JVM starts
  producers -> broker -> orderly group, with two kills; parked aircraft are repaired, released
  concurrent group | Spark: table, joins, delays, order  | audit of the orderly group
  Spark: dead letters of the concurrent group            | audit of the concurrent group
  report and page
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.demo.flights import event_files, html_report
from cometmq.demo.flights.checks.broker_queries import BrokerQueries
from cometmq.demo.flights.checks.measurements import Measurements, report_of
from cometmq.demo.flights.checks.observations import ordered_by_time
from cometmq.demo.flights.checks.order_audit import AuditResult, OrderAudit
from cometmq.demo.flights.checks.sampler import Sampler
from cometmq.demo.flights.dataset import read_flights
from cometmq.demo.flights.events import Totals, events_of, first_flights, require_whole, totals_of
from cometmq.demo.flights.processes import concurrent_group, orderly_group
from cometmq.demo.flights.processes.job_processes import TOPIC, JobProcesses
from cometmq.demo.flights.spark_tables import SparkTables
from cometmq.spark.tables.backlog import backlog
from cometmq.spark.tables.spark_failures import spark_errors_translated

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from cometmq.demo.flights.progress import Progress
    from cometmq.demo.flights.report import JobReport

GROUPS = (orderly_group.GROUP, concurrent_group.GROUP)
BACKLOG_S = 0.5
"""How long the groups are watched at the end; nothing may come any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The options of the job."""

    directory: Path
    messages: int | None = None
    """About the first so many messages; None is the whole year."""
    cores: int = 2
    heap_mb: int = 1024


def run(settings: JobSettings, progress: Progress) -> JobReport:
    """Run the whole job; return its report, also written to the directory as HTML and JSON.

    Raises CometError when the job cannot go on; a wrong count raises nothing.
    """
    began_s, directory = time.monotonic(), settings.directory
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(2, "flights"))
        processes = stack.enter_context(JobProcesses(directory))
        queries = stack.enter_context(BrokerQueries(processes.broker.namesrv))
        sampler = stack.enter_context(
            Sampler(lambda: {group: queries.lag(group, TOPIC) for group in GROUPS})
        )
        spark = threads.submit(_start_spark, settings, processes.broker.namesrv)
        stack.callback(_stop_spark, spark)
        work = _JobSteps(settings, progress, processes, queries, threads)
        with spark_errors_translated():
            found = work.find(spark, began_s)
        report = report_of(found)
        report.memory_peak_mib = sampler.memory_peak_mib
        report.seconds = time.monotonic() - began_s
        _write(directory, report, found, sampler)
    return report


class _JobSteps:
    """The steps of one run, in order, with everything they need."""

    def __init__(
        self,
        settings: JobSettings,
        progress: Progress,
        processes: JobProcesses,
        queries: BrokerQueries,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._processes = processes
        self._queries = queries
        self._threads = threads

    def find(self, spark: Future[SparkTables], began_s: float) -> Measurements:
        """Run all steps and return what they measured."""
        processes, queries, progress = self._processes, self._queries, self._progress
        totals, events_written = self._prepare()
        messages = totals.messages
        bad = totals.without_arrival_time
        followed = orderly_group.send_and_follow(processes, queries, messages, bad, progress)
        orderly = self._audit(orderly_group.GROUP)
        concurrent_group.begin(processes, messages)
        tables = spark.result()
        report_progress = progress.step("Spark: events to a table by day", messages)
        events = tables.write_events(TOPIC, report_progress)
        report_progress(messages)
        report_progress = progress.step("Spark: joins with airlines, airports, weather", 0)
        joined, delays = tables.join(), tables.delays()
        report_progress(messages)
        report_progress = progress.step("Spark: order of every aircraft", messages)
        order = tables.audit_order(TOPIC)
        report_progress(messages)
        concurrent_group.finish(processes, queries, TOPIC, messages, bad, progress)
        concurrent = self._audit(concurrent_group.GROUP)
        report_progress = progress.step("Spark: dead letters of the control", bad)
        dead = tables.write_dead_letters([concurrent_group.GROUP])
        report_progress(bad)
        return Measurements(
            totals=totals,
            is_whole=self._settings.messages is None,
            events_written=events_written,
            sent=processes.summaries(),
            stored=queries.stored(TOPIC),
            backlogs=backlog(GROUPS, namesrv=processes.broker.namesrv, over_s=BACKLOG_S),
            orderly=orderly.result(),
            repairs=followed.repairs,
            concurrent=concurrent.result(),
            events=events,
            joined=joined,
            delays=delays,
            order=order,
            dead=dead,
            began_s=began_s,
            moments=followed.moments,
        )

    def _prepare(self) -> tuple[Totals, int]:
        """Read and count the input, write each file of events; return both counts."""
        report_progress = self._progress.step("reading the flights", 0)
        flights = read_flights()
        if self._settings.messages is None:
            require_whole(totals_of(flights))
        else:
            flights = first_flights(flights, self._settings.messages)
        events_written = sum(event_files.write(events_of(flights), self._processes.event_paths))
        report_progress(events_written)
        return totals_of(flights), events_written

    def _audit(self, group: str) -> Future[AuditResult]:
        observation_paths = self._processes.observation_paths(group)
        return self._threads.submit(lambda: OrderAudit().feed(ordered_by_time(observation_paths)))


def _start_spark(settings: JobSettings, namesrv: str) -> SparkTables:
    return SparkTables(
        settings.directory / "tables", namesrv, cores=settings.cores, heap_mb=settings.heap_mb
    )


def _stop_spark(spark: Future[SparkTables]) -> None:
    """Stop Spark, even while it is starting; do nothing if it never started."""
    wait([spark])
    if spark.exception() is None:
        spark.result().stop()


def _write(directory: Path, report: JobReport, found: Measurements, sampler: Sampler) -> None:
    path = directory / "report.html"
    report.page = str(path)
    html_report.write(path, report, found, sampler.samples)
    path.with_suffix(".json").write_text(json.dumps(report.as_json(), indent=1))
