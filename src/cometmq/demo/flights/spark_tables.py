"""The Spark side: jobs of `cometmq pipeline` over the broker's topics, and what is made of them.

Owns joins and aggregates; does not know expectations and plots. One session, one thread.
Invariant: counts "after a join" are taken in the same pass that writes the joined table, so they
count the same rows.
Tables: the archives events/ (partitioned by day) and dead_letters/, and joined/ in Parquet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as f

from cometmq.demo.flights.dataset import data_file
from cometmq.demo.flights.events import SEQUENCE
from cometmq.spark.session import spark_session
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.dead_letters import dead_letters
from cometmq.spark.tables.order import order_of_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.stored_order import StoredOrder

    ProgressCallback = Callable[[int], None]
    """Takes the number of rows read so far."""

BODY = (
    "event string, flight string, time timestamp, scheduled timestamp, tail string, "
    "carrier string, origin string, dest string, dep_delay int, arr_time int, arr_delay int, "
    "air_time int"
)
"""The fields of an event's JSON body, as Spark's DDL."""

BEFORE_JOINS = "before the joins"
"""Name of the first of the counts of rows."""

COMMIT_ROWS = 2_000_000
"""Messages of a commit of the events at most: all, for every commit writes files of each day."""

NEW_YORK = "America/New_York"
LATE_MIN = 15
"""Minutes after which the field calls a departure late."""

_DEAD_LETTER = (
    "group", "keys AS flight", "tags AS event", "reason", "attempts", "failed_at", "origin_topic",
    "origin_queue_id", "origin_offset", "origin_message_id", "store_ts AS dead_at",
    "string(body) AS body",
)  # fmt: skip


@dataclass(slots=True)
class EventsTable:
    """The table of events, a row for each stored message."""

    stored: int
    seconds: float


@dataclass(slots=True)
class JoinedFlights:
    """The events without duplicates, joined with airline, airports and weather."""

    rows: dict[str, int]
    """Rows before the joins (`BEFORE_JOINS`) and after each, in order."""
    by_kind: dict[str, int]
    airports_missing: list[str]
    """Destinations that the airports table does not know."""
    without_weather: int
    seconds: float


@dataclass(slots=True)
class DeadLettersTable:
    """The table of dead letters, counted by consumer group."""

    rows: dict[str, int]
    flights: dict[str, int]
    """Different flights among them; fewer than `rows` would mean a duplicate."""
    attempts: dict[str, list[int]]
    """The numbers of attempts that occur."""
    examples: list[dict[str, Any]]
    seconds: float


@dataclass(slots=True)
class OrderTable:
    """The audit of the stored order."""

    found: StoredOrder
    seconds: float


@dataclass(slots=True)
class DelayTables:
    """Mean delays in minutes, as rows of plain values."""

    by_hour: list[dict[str, Any]] = field(default_factory=list)
    """By scheduled hour in New York."""
    by_origin: list[dict[str, Any]] = field(default_factory=list)
    by_destination: list[dict[str, Any]] = field(default_factory=list)
    by_airline: list[dict[str, Any]] = field(default_factory=list)
    by_day: list[dict[str, Any]] = field(default_factory=list)
    by_rain: list[dict[str, Any]] = field(default_factory=list)


class SparkTables:
    """All queries of the job over one Spark session; the constructor starts Spark."""

    def __init__(self, directory: Path, namesrv: str, *, cores: int, heap_mb: int) -> None:
        self._directory = directory
        self._namesrv = namesrv
        self._session: SparkSession = spark_session(
            "cometmq-flights",
            cores=cores,
            heap_mb=heap_mb,
            conf={"spark.sql.warehouse.dir": str(directory / "warehouse")},
        )

    def stop(self) -> None:
        """End Spark."""
        self._session.stop()

    def write_events(self, topic: str, report_progress: ProgressCallback) -> EventsTable:
        """Archive all there is of the topic, partitioned by the day of the event."""
        begin_s = time.monotonic()
        done = archive(
            self._session,
            topic,
            self._directory / "events",
            namesrv=self._namesrv,
            schema=BODY,
            partition="to_date(value.time) AS day",
            max_rows=COMMIT_ROWS,
            report=lambda progress: report_progress(progress.rows),
        )
        return EventsTable(done.rows, seconds=time.monotonic() - begin_s)

    def join(self) -> JoinedFlights:
        """Left-join airlines, airports and weather to the different events; write the result."""
        begin_s = time.monotonic()
        counts: list[tuple[str, Observation]] = []

        def counted(frame: DataFrame, name: str) -> DataFrame:
            counts.append((name, Observation(name)))
            return frame.observe(counts[-1][1], f.count(f.lit(1)).alias("rows"))

        events = _without_repeats(self._events())
        frame = counted(
            events.withColumn("hour_utc", f.date_trunc("hour", "scheduled")), BEFORE_JOINS
        )
        for name, side, keys in self._sides():
            frame = counted(frame.join(f.broadcast(side), keys, "left"), f"after {name}")
        frame.write.mode("overwrite").parquet(self._joined_path)
        joined = self._joined()
        missing = joined.where("airport is null").select("dest").distinct().collect()
        return JoinedFlights(
            rows={name: one.get["rows"] for name, one in counts},
            by_kind={
                row["event"]: row["count"] for row in joined.groupBy("event").count().collect()
            },
            airports_missing=sorted(row["dest"] for row in missing),
            without_weather=joined.where("weather is null").count(),
            seconds=time.monotonic() - begin_s,
        )

    def delays(self) -> DelayTables:
        """Mean delays by hour, airport, airline, day and rain, from the joined table."""
        local = f.from_utc_timestamp("scheduled", NEW_YORK)
        joined = self._joined().where("event in ('DEPARTED', 'ARRIVED')")
        table = (
            joined.withColumn("hour", f.hour(local))
            .withColumn("date", f.to_date(local).cast("string"))
            .withColumn("rain", f.col("precip") > 0)
            .withColumn("destination", f.coalesce("airport", "dest"))
            .select(
                "event", "hour", "date", "rain", "origin", "dest", "destination", "airline",
                "dep_delay", "arr_delay",
            )
        )  # fmt: skip
        return DelayTables(
            by_hour=_means(table, "hour"),
            by_origin=_means(table, "origin"),
            by_destination=_means(table, "dest", "destination"),
            by_airline=_means(table, "airline"),
            by_day=_means(table, "date"),
            by_rain=_means(table.where("rain is not null"), "rain"),
        )

    def write_dead_letters(self, groups: Sequence[str]) -> DeadLettersTable:
        """Archive the dead letters of these groups in one table."""
        begin_s, place = time.monotonic(), self._directory / "dead_letters"
        done = dead_letters(self._session, place, groups=groups, namesrv=self._namesrv)
        seconds = time.monotonic() - begin_s
        if not done.rows:
            return DeadLettersTable({}, {}, {}, [], seconds)
        table = read_archive(self._session, place)
        counts = (
            table.groupBy("group")
            .agg(
                f.count("*").alias("rows"),
                f.countDistinct("keys").alias("flights"),
                f.sort_array(f.collect_set("attempts")).alias("attempts"),
            )
            .collect()
        )
        examples = table.orderBy("keys", "group").limit(6).selectExpr(*_DEAD_LETTER).collect()
        return DeadLettersTable(
            rows={row["group"]: row["rows"] for row in counts},
            flights={row["group"]: row["flights"] for row in counts},
            attempts={row["group"]: list(row["attempts"]) for row in counts},
            examples=[_plain(row.asDict()) for row in examples],
            seconds=seconds,
        )

    def audit_order(self, topic: str) -> OrderTable:
        """Is the sequence of every sharding key unbroken, and in one queue, as stored?"""
        begin_s = time.monotonic()
        found = order_of_topics(
            self._session, topic, namesrv=self._namesrv, sequence=f"properties.{SEQUENCE}"
        )
        return OrderTable(found, seconds=time.monotonic() - begin_s)

    def _events(self) -> DataFrame:
        """The archived events, with the fields of their bodies as columns."""
        table = read_archive(self._session, self._directory / "events")
        return table.select(
            "msg_id", "queue_id", "queue_offset", "born_ts", "store_ts", "value.*", "day"
        )

    @property
    def _joined_path(self) -> str:
        return str(self._directory / "joined")

    def _joined(self) -> DataFrame:
        return self._session.read.parquet(self._joined_path)

    def _sides(self) -> list[tuple[str, DataFrame, list[str]]]:
        """The tables to join: name, rows, columns they share with the events."""

        def csv(name: str) -> DataFrame:
            return self._session.read.csv(
                str(data_file(name)), header=True, nullValue="NA", encoding="UTF-8"
            )

        airlines = csv("airlines.csv").withColumnRenamed("name", "airline")
        airports = csv("airports.csv").selectExpr("faa as dest", "name as airport", "tzone")
        weather = csv("weather.csv").select(
            "origin",
            f.to_timestamp("time_hour").alias("hour_utc"),
            f.lit(True).alias("weather"),
            *(f.col(name).cast("double") for name in ("temp", "wind_speed", "precip", "visib")),
        )
        return [
            ("airlines", airlines, ["carrier"]),
            ("airports", airports, ["dest"]),
            ("weather", weather, ["origin", "hour_utc"]),
        ]


def _without_repeats(table: DataFrame) -> DataFrame:
    """The first stored of all messages with the same id.

    The few ids that occur twice are found first and broadcast. That moves two columns between
    tasks; dropDuplicates would move and sort whole rows.
    """
    twice = (
        table.groupBy("msg_id")
        .agg(f.count("*").alias("times"), f.min("queue_offset").alias("first_offset"))
        .where("times > 1")
        .drop("times")
    )
    first = f.col("first_offset").isNull() | (f.col("queue_offset") == f.col("first_offset"))
    return table.join(f.broadcast(twice), "msg_id", "left").where(first).drop("first_offset")


def _means(table: DataFrame, *keys: str) -> list[dict[str, Any]]:
    late = f.avg((f.col("dep_delay") > LATE_MIN).cast("double"))
    rows = (
        table.groupBy(*keys)
        .agg(
            f.count(f.when(f.col("event") == "DEPARTED", 1)).alias("departed"),
            f.count(f.when(f.col("event") == "ARRIVED", 1)).alias("arrived"),
            f.round(f.avg("dep_delay"), 2).alias("departure_delay"),
            f.round(f.avg("arr_delay"), 2).alias("arrival_delay"),
            f.round(late, 4).alias("late_share"),
        )
        .orderBy(*keys)
        .collect()
    )
    return [row.asDict() for row in rows]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as text, for JSON."""
    return {
        name: value if value is None or isinstance(value, int | str) else value.isoformat()
        for name, value in row.items()
    }
