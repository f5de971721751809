"""The flights job from input to report: the order of its steps and what runs beside what.

Owns the order, the waiting and the cleaning up; refuses to know how a step does its work.
Invariant: however it ends, every child process is gone and Spark is stopped; every wait has a
bound (`STALL_S` without any progress).

  read flights -> events -> one file a producer                    | Spark's JVM starts
  producers -> broker -> orderly group of two (with two kills)
  concurrent group of two | Spark: table, joins, delays, order     | audit of the orderly group
  Spark: dead letters of both groups                               | audit of the concurrent group
  report and page
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cometmq.demo.flights import checks, control, follow, page, produce, spool
from cometmq.demo.flights.audit import Audit, Verdict, percentile
from cometmq.demo.flights.children import Broker, Child, ChildError
from cometmq.demo.flights.dataset import read_flights
from cometmq.demo.flights.events import events_of, first_flights, totals_of
from cometmq.demo.flights.gauge import Gauge
from cometmq.demo.flights.kills import BROKER_AT, CONSUMER_AT, Kill, Kills
from cometmq.demo.flights.observations import count, in_order_of_time
from cometmq.demo.flights.report import Latency, Report, Stage
from cometmq.demo.flights.tables import Tables
from cometmq.demo.flights.watch import Watch
from cometmq.errors import CometError
from cometmq.model.topic import dlq_topic_of, retry_topic_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from cometmq.demo.flights.events import Totals

TOPIC, QUEUES = "flights", 16
ORDERLY = "flights-orderly"
PRODUCERS, FOLLOWERS = 2, 2
ORDERLY_THREADS = 8
LOCK_LIFE_MS, LOCK_VALID_S = 6000, 4.0
"""A killed member's queues move on when its locks have run out at the broker."""

SHORTEST_S = 12.0
"""Sending takes at least so long: a shorter run would have no middle for the kills."""
STALL_S = 90.0
_POLL_S = 0.1

BROKER_SETTINGS = (
    f"queueLockExpireMs={LOCK_LIFE_MS}",
    f"messageDelayLevel={control.DELAY_LEVELS}",
    f"maxTransferCountOnMessageInMemory={follow.PULL_BATCH}",
    f"pullBatchMaxMessageCount={follow.PULL_BATCH}",
)


class Progress(Protocol):
    """Where the job tells how far it is."""

    def step(self, name: str, total: int) -> Callable[[int], None]:
        """Begin a step of `total` messages (0: unknown); call the result with what is done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the job is told."""

    directory: Path
    messages: int | None = None
    """About the first so many messages; None is the whole year."""
    cores: int = 2
    heap_mb: int = 1024


def run(settings: Settings, progress: Progress) -> Report:
    """Do the whole job and return its report; the page is written beside it."""
    with ExitStack() as stack:
        return _Job(settings, progress, stack).run()


class _Job:
    """One run. Its parts are closed by the stack in reverse order."""

    def __init__(self, settings: Settings, progress: Progress, stack: ExitStack) -> None:
        self._settings, self._progress, self._stack = settings, progress, stack
        self._directory = settings.directory
        self._broker = Broker(self._directory, BROKER_SETTINGS)
        self._children: dict[str, Child] = {}
        self._threads = ThreadPoolExecutor(2, "flights")
        self._begin_s = time.monotonic()
        self._totals: Totals
        self._gauge: Gauge
        self._watch: Watch
        self._kills: Kills
        self._report: Report
        self._journals: dict[str, list[Path]] = {ORDERLY: [], control.GROUP: []}
        self._watched: list[str] = [ORDERLY]

    def run(self) -> Report:
        """All steps."""
        self._stack.callback(self._threads.shutdown)
        self._stack.callback(self._stop_children)
        self._broker.start()
        self._gauge = self._stack.enter_context(Gauge(self._broker.namesrv))
        self._watch = self._stack.enter_context(Watch(self._lag))
        spark = self._threads.submit(self._start_spark)
        self._stack.callback(lambda: spark.result().stop())
        self._prepare()
        self._send_and_follow()
        followed = self._threads.submit(_verdict, self._journals[ORDERLY])
        self._start_control()
        self._read_with_spark(spark.result(), followed)
        return self._finish()

    def _start_spark(self) -> Tables:
        return Tables(
            self._directory / "tables",
            self._broker.namesrv,
            cores=self._settings.cores,
            heap_mb=self._settings.heap_mb,
        )

    def _prepare(self) -> None:
        """Read the input, count it, and write one file of events for each producer."""
        tell = self._progress.step("reading the flights", 0)
        flights = read_flights()
        if self._settings.messages is not None:
            flights = first_flights(flights, self._settings.messages)
        self._totals = totals_of(flights)
        self._report = Report(messages=self._totals.messages)
        spooled = sum(spool.write(events_of(flights), self._spools()))
        tell(len(flights))
        is_whole = self._settings.messages is None
        checks.check_input(self._report, self._totals, is_whole=is_whole, spooled=spooled)
        if self._report.failed:
            raise CometError(self._report.failed[0].sentence())

    def _send_and_follow(self) -> None:
        """Send everything while an orderly group follows, a consumer and the broker are killed."""
        self._gauge.create_topic(TOPIC, QUEUES)
        for _ in range(FOLLOWERS):
            self._start_follower(ORDERLY, orderly=True, threads=ORDERLY_THREADS)
        self._kills = Kills(
            [
                Kill("consumer killed, another joins", CONSUMER_AT, self._replace_consumer),
                Kill("broker killed and restarted", BROKER_AT, self._restart_broker),
            ],
            lambda: self._watch.now_s,
        )
        for index in range(PRODUCERS):
            self._start_producer(index)
        tell_sent = self._progress.step("sending", self._totals.messages)
        tell_followed = self._progress.step("following every aircraft", self._totals.messages)

        def look() -> tuple[int, ...]:
            sent = sum(produce.stored_so_far(path) for path in self._counters())
            self._kills.look(sent, self._totals.messages)
            followed = sum(map(count, self._journals[ORDERLY]))
            tell_sent(sent)
            tell_followed(min(followed, self._totals.messages))
            return sent, followed

        self._until(lambda: not self._running("producer"), look)
        self._until(lambda: self._gauge.lag(ORDERLY, TOPIC) == 0, look)
        self._kills.require_done()
        self._stop_children(keep_broker=True)
        look()

    def _start_control(self) -> None:
        self._watched.append(control.GROUP)
        for _ in range(control.MEMBERS):
            self._start_follower(control.GROUP, orderly=False, threads=control.THREADS)

    def _read_with_spark(self, tables: Tables, followed: Future[Verdict]) -> None:
        """Tables, joins and audits, while the concurrent group is at work."""
        totals, report, step = self._totals, self._report, self._progress.step
        is_whole = self._settings.messages is None
        tell = step("Spark: events to a table by day", totals.messages)
        events = tables.write_events(TOPIC)
        tell(totals.messages)
        stored = sum(self._gauge.stored(TOPIC).values())
        sent = self._produced()
        checks.check_sent(
            report, totals, sum(one["messages"] for one in sent), stored, events.unique
        )
        checks.check_events_table(report, totals, events, stored)
        report.stages.append(_sending(sent, stored - events.unique))

        verdict = followed.result()
        checks.check_followed(report, totals, verdict)
        self._add_group("orderly group", verdict)

        tell = step("Spark: joins", totals.messages)
        joined = tables.join()
        tell(totals.messages)
        checks.check_joins(report, totals, joined, is_whole=is_whole)
        self._delays = tables.delays()
        checks.check_delays(report, totals, self._delays)

        tell = step("Spark: order of every aircraft", totals.messages)
        order = tables.audit_order(TOPIC)
        tell(totals.messages)
        checks.check_order_table(report, totals, order, stored)

        controlled = self._finish_control()
        tell = step("Spark: dead letters", 2 * totals.without_arrival_time)
        buried = {
            group: sum(self._gauge.stored(dlq_topic_of(group)).values())
            for group in (ORDERLY, control.GROUP)
        }
        dead = tables.write_dead_letters({group: dlq_topic_of(group) for group in buried})
        tell(sum(buried.values()))
        checks.check_dead_letters(report, totals, buried, dead, follow.ATTEMPTS)
        verdict = controlled.result()
        checks.check_control(report, totals, verdict)
        self._add_group("concurrent group", verdict)
        report.stages += [
            Stage("Spark: topic to Parquet by day", events.unique, events.stored - events.unique,
                  events.seconds),
            Stage("Spark: three joins and write", joined.rows["events"], 0, joined.seconds),
            Stage("Spark: audit of the order", order.unique, order.repeats, order.seconds),
            Stage("Spark: dead letters to a table", sum(dead.rows.values()), 0, dead.seconds),
        ]  # fmt: skip
        report.facts |= {
            "airports_missing": joined.airports_missing,
            "without_weather": joined.without_weather,
            "dead_letters": dead.examples,
            "control_violations": verdict.violations,
            "control_examples": verdict.examples,
        }

    def _finish_control(self) -> Future[Verdict]:
        """Wait until the concurrent group has handled or buried everything; begin its audit."""
        totals, journals = self._totals, self._journals[control.GROUP]
        tell = self._progress.step("the concurrent control", totals.messages)

        def look() -> tuple[int, ...]:
            handled = sum(map(count, journals))
            tell(min(handled, totals.messages))
            return (handled,)

        def is_done() -> bool:
            dead = sum(self._gauge.stored(dlq_topic_of(control.GROUP)).values())
            topics = (TOPIC, retry_topic_of(control.GROUP))
            lags = (self._gauge.lag(control.GROUP, topic) for topic in topics)
            return dead >= totals.without_arrival_time and not any(lags)

        self._until(is_done, look)
        self._stop_children(keep_broker=True)
        return self._threads.submit(_verdict, journals)

    def _finish(self) -> Report:
        report, watch = self._report, self._watch
        report.memory_peak_mib = watch.memory_peak_mib
        report.seconds = time.monotonic() - self._begin_s
        report.events = [f"{what} after {at_s:.0f} s" for at_s, what in self._kills.moments]
        path = self._directory / "report.html"
        report.page = str(path)
        page.write(
            path,
            report,
            delays=self._delays,
            queues=self._gauge.stored(TOPIC),
            samples=watch.samples,
            moments=self._kills.moments,
        )
        path.with_suffix(".json").write_text(json.dumps(report.as_json(), indent=1))
        return report

    def _add_group(self, name: str, verdict: Verdict) -> None:
        report = self._report
        report.stages.append(Stage(name, verdict.unique, verdict.repeats, verdict.seconds))
        latencies = sorted(verdict.latencies_ms)
        if name == "orderly group":
            p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
            report.latencies.append(
                Latency("producer to orderly handler", p50, p99, len(latencies))
            )
            report.facts["hand_overs"] = verdict.hand_overs

    # processes

    def _start_follower(self, group: str, *, orderly: bool, threads: int) -> str:
        journals = self._journals[group]
        name = f"{group}-{len(journals)}"
        journals.append(self._directory / f"{name}.seen")
        order = follow.Order(
            namesrv=self._broker.namesrv,
            topic=TOPIC,
            group=group,
            orderly=orderly,
            journal=str(journals[-1]),
            threads=threads,
            pause_every=control.pause_every(self._totals.messages),
            lock_valid_s=LOCK_VALID_S,
        )
        self._children[name] = self._child(name, follow.__name__, order.as_argument())
        return name

    def _start_producer(self, index: int) -> None:
        messages = self._totals.messages
        fastest = messages / SHORTEST_S / PRODUCERS
        order = produce.Order(
            namesrv=self._broker.namesrv,
            topic=TOPIC,
            events=str(self._spools()[index]),
            counter=str(self._counters()[index]),
            summary=str(self._summaries()[index]),
            per_second=fastest,
        )
        name = f"producer-{index}"
        self._children[name] = self._child(name, produce.__name__, order.as_argument())

    def _child(self, name: str, module: str, argument: str) -> Child:
        return Child(name, module, [argument], self._directory / f"{name}.log")

    def _replace_consumer(self) -> None:
        name = f"{ORDERLY}-{FOLLOWERS - 1}"
        self._children.pop(name).kill()
        self._start_follower(ORDERLY, orderly=True, threads=ORDERLY_THREADS)

    def _restart_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _running(self, name: str) -> bool:
        return any(
            child.is_running for key, child in self._children.items() if key.startswith(name)
        )

    def _until(self, is_done: Callable[[], bool], look: Callable[[], tuple[int, ...]]) -> None:
        """Wait for something; raises ChildError when a process fails or nothing moves any more."""
        seen, moved_s = look(), time.monotonic()
        while not is_done():
            time.sleep(_POLL_S)
            self._broker.require_no_failure()
            for child in self._children.values():
                child.require_no_failure()
            now = look()
            if now != seen:
                seen, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > STALL_S:
                raise ChildError(
                    f"nothing has moved for {STALL_S:.0f} s; the logs are in {self._directory}"
                )

    def _stop_children(self, *, keep_broker: bool = False) -> None:
        children, self._children = self._children, {}
        for child in children.values():
            child.ask_to_stop()
        for child in children.values():
            child.stop()
        if not keep_broker:
            self._broker.stop()

    def _lag(self) -> dict[str, int]:
        return {group: self._gauge.lag(group, TOPIC) for group in self._watched}

    # files

    def _spools(self) -> list[Path]:
        return [self._directory / f"producer-{index}.events" for index in range(PRODUCERS)]

    def _counters(self) -> list[Path]:
        return [path.with_suffix(".count") for path in self._spools()]

    def _summaries(self) -> list[Path]:
        return [path.with_suffix(".json") for path in self._spools()]

    def _produced(self) -> list[dict[str, int]]:
        return [json.loads(path.read_text()) for path in self._summaries()]


def _sending(sent: list[dict[str, int]], repeats: int) -> Stage:
    began = min(one["begin_ns"] for one in sent)
    ended = max(one["end_ns"] for one in sent)
    messages = sum(one["messages"] for one in sent)
    return Stage("sending", messages, repeats, (ended - began) / 1e9)


def _verdict(journals: list[Path]) -> Verdict:
    return Audit().feed(in_order_of_time(journals))
