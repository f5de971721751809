"""The Spark side: three streaming queries over the broker's topics, and the tables made of them.

Owns queries, joins and aggregates; does not know expectations and plots. One session, one thread.
Invariants: every query has its own checkpoint and may be restarted; counts "after a join" are
taken in the same pass that writes the joined table, so they count the same rows.
Tables, all Parquet: events/ (partitioned by day), joined/, dead_letters/, order/batch=N.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Observation, Window
from pyspark.sql import functions as f

from cometmq.demo.flights.dataset import data_file
from cometmq.demo.flights.events import SEQUENCE
from cometmq.errors import CometError
from cometmq.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

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

BATCH_ROWS = 600_000
"""Rows of a micro-batch at most: large, because every batch writes a file for each of its days."""

NEW_YORK = "America/New_York"
_STATE = "key string, queue_id int, last int, rows bigint, repeats bigint, gaps bigint, moves int"
"""The state of every sharding key that the order audit carries from batch to batch."""

_POLL_S = 0.5

LATE_MIN = 15
"""Minutes after which the field calls a departure late."""


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
    """The audit of the stored order, per sharding key."""

    rows: int
    keys: int
    unique: int
    repeats: int
    gaps: int
    """Sequence numbers that came before their predecessor."""
    scattered: int
    """Sharding keys that lie in more than one queue."""
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


@contextmanager
def spark_errors_translated() -> Iterator[None]:
    """Turn an error of Spark into a CometError with its first line."""

    try:
        yield
    except PySparkException as error:
        first = str(error).strip().partition("\n")[0]
        raise CometError(f"Spark failed: {first}") from error


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
        """Run the first query over all there is: topic to Parquet, partitioned by day."""
        begin_s = time.monotonic()
        columns = "msg_id,queue_id,queue_offset,body,born_ts,store_ts"
        rows = self._source(topic, columns).withColumn(
            "one", f.from_json(f.col("body").cast("string"), BODY)
        )
        parsed = rows.select(
            "msg_id", "queue_id", "queue_offset", "born_ts", "store_ts", "one.*"
        ).withColumn("day", f.to_date("time"))
        self._append(parsed.repartition("day"), "events", report_progress, partition="day")
        stored = self._table("events").count()
        return EventsTable(stored, seconds=time.monotonic() - begin_s)

    def join(self) -> JoinedFlights:
        """Left-join airlines, airports and weather to the different events; write the result."""
        begin_s = time.monotonic()
        counts: list[tuple[str, Observation]] = []

        def counted(frame: DataFrame, name: str) -> DataFrame:
            counts.append((name, Observation(name)))
            return frame.observe(counts[-1][1], f.count(f.lit(1)).alias("rows"))

        events = _without_repeats(self._table("events"))
        frame = counted(
            events.withColumn("hour_utc", f.date_trunc("hour", "scheduled")), BEFORE_JOINS
        )
        for name, side, keys in self._sides():
            frame = counted(frame.join(f.broadcast(side), keys, "left"), f"after {name}")
        path = str(self._directory / "joined")
        frame.write.mode("overwrite").parquet(path)
        joined = self._table("joined")
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
        joined = self._table("joined").where("event in ('DEPARTED', 'ARRIVED')")
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

    def write_dead_letters(
        self, topics: dict[str, str], report_progress: ProgressCallback
    ) -> DeadLettersTable:
        """Run the second query: the dead-letter topics (by group) to one table."""
        begin_s = time.monotonic()
        columns = "keys,tags,properties,body,store_ts"
        frames = [
            self._source(topic, columns).withColumn("group", f.lit(group))
            for group, topic in topics.items()
        ]
        both = frames[0]
        for frame in frames[1:]:
            both = both.unionByName(frame)
        self._append(_dead_letter_rows(both), "dead_letters", report_progress)
        seconds = time.monotonic() - begin_s
        table = self._table("dead_letters")
        groups = (
            table.groupBy("group")
            .agg(
                f.count("*").alias("rows"),
                f.countDistinct("flight").alias("flights"),
                f.sort_array(f.collect_set("attempts")).alias("attempts"),
            )
            .collect()
        )
        examples = table.orderBy("flight", "group").limit(6).collect()
        return DeadLettersTable(
            rows={row["group"]: row["rows"] for row in groups},
            flights={row["group"]: row["flights"] for row in groups},
            attempts={row["group"]: list(row["attempts"]) for row in groups},
            examples=[_plain(row.asDict()) for row in examples],
            seconds=seconds,
        )

    def audit_order(self, topic: str, report_progress: ProgressCallback) -> OrderTable:
        """Run the third query: is every sharding key's sequence unbroken as stored?

        Each batch is judged against the state the batch before it left, a small table by batch,
        so a batch that is run again gives the same result.
        """
        begin_s = time.monotonic()
        source = self._source(topic, "queue_id,queue_offset,sharding_key,properties")
        order = self._directory / "order"
        query = (
            source.select(
                f.col("sharding_key").alias("key"),
                "queue_id",
                "queue_offset",
                f.col("properties")[SEQUENCE].cast("int").alias("seq"),
            )
            .writeStream.foreachBatch(lambda batch, number: _judge(batch, number, str(order)))
            .option("checkpointLocation", str(self._directory / "checkpoints" / "order"))
            .trigger(availableNow=True)
            .start()
        )
        _run(query, report_progress)
        last = max(order.glob("batch=*"), key=lambda path: int(path.name.partition("=")[2]))
        total = (
            self._session.read.parquet(str(last))
            .agg(
                f.sum("rows").alias("rows"),
                f.count("*").alias("keys"),
                f.sum("last").alias("unique"),
                f.sum("repeats").alias("repeats"),
                f.sum("gaps").alias("gaps"),
                f.sum("moves").alias("scattered"),
            )
            .collect()[0]
        )
        return OrderTable(**total.asDict(), seconds=time.monotonic() - begin_s)

    def _source(self, topic: str, columns: str) -> DataFrame:
        return (
            self._session.readStream.format("rocketmq")
            .option("namesrv", self._namesrv)
            .option("topic", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH_ROWS)
            .option("failOnMissingTopic", "false")
            .option("columns", columns)
            .load()
        )

    def _append(
        self, frame: DataFrame, name: str, report_progress: ProgressCallback, partition: str = ""
    ) -> None:
        """Write a stream to a Parquet table until what is there now has been read."""
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self._directory / name))
            .option("checkpointLocation", str(self._directory / "checkpoints" / name))
            .trigger(availableNow=True)
        )
        if partition:
            writer = writer.partitionBy(partition)
        _run(writer.start(), report_progress)

    def _table(self, name: str) -> DataFrame:
        return self._session.read.parquet(str(self._directory / name))

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


def _run(query: StreamingQuery, report_progress: ProgressCallback) -> None:
    """Wait for the query's end, reporting how many rows its batches had so far."""
    while not query.awaitTermination(_POLL_S):
        report_progress(sum(batch["numInputRows"] for batch in query.recentProgress))


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


def _dead_letter_rows(frame: DataFrame) -> DataFrame:
    """The flight, the reason, the attempts, the time and the origin of each dead letter."""
    of = f.col("properties")
    return frame.select(
        "group",
        f.col("keys").alias("flight"),
        f.col("tags").alias("event"),
        of["DLQ_REASON"].alias("reason"),
        of["DLQ_ATTEMPTS"].cast("int").alias("attempts"),
        f.timestamp_millis(of["DLQ_FAILED_AT"].cast("bigint")).alias("failed_at"),
        of["DLQ_ORIGIN_TOPIC"].alias("origin_topic"),
        of["DLQ_ORIGIN_QUEUE_ID"].cast("int").alias("origin_queue_id"),
        of["DLQ_ORIGIN_OFFSET"].cast("bigint").alias("origin_offset"),
        of["DLQ_ORIGIN_MESSAGE_ID"].alias("origin_message_id"),
        f.col("store_ts").alias("dead_at"),
        f.col("body").cast("string").alias("body"),
    )


def _judge(batch: DataFrame, number: int, order: str) -> None:
    """One micro-batch of the order audit: check its rows, write the new state of all keys."""
    session, zero = batch.sparkSession, f.lit(0)
    state = (
        session.read.schema(_STATE).parquet(f"{order}/batch={number - 1}")
        if number
        else session.createDataFrame([], _STATE)
    )
    earlier = state.select("key", f.col("last").alias("carried"))
    in_turn = Window.partitionBy("key").orderBy("queue_offset")
    highest = f.max("seq").over(in_turn.rowsBetween(Window.unboundedPreceding, -1))
    judged = (
        batch.join(f.broadcast(earlier), "key", "left")
        .withColumn("reached", f.greatest(f.coalesce(highest, zero), f.coalesce("carried", zero)))
        .groupBy("key")
        .agg(
            f.max("seq").alias("top"),
            f.count("*").alias("more_rows"),
            f.count_if(f.col("seq") <= f.col("reached")).alias("more_repeats"),
            f.count_if(f.col("seq") > f.col("reached") + 1).alias("more_gaps"),
            f.min("queue_id").alias("low"),
            f.max("queue_id").alias("high"),
        )
    )
    state.join(judged, "key", "full").select(
        "key",
        f.coalesce("queue_id", "low").alias("queue_id"),
        f.greatest(f.coalesce("last", zero), f.coalesce("top", zero)).alias("last"),
        (f.coalesce("rows", zero) + f.coalesce("more_rows", zero)).alias("rows"),
        (f.coalesce("repeats", zero) + f.coalesce("more_repeats", zero)).alias("repeats"),
        (f.coalesce("gaps", zero) + f.coalesce("more_gaps", zero)).alias("gaps"),
        (
            (f.coalesce("moves", zero) > 0)
            | f.coalesce(f.col("low") != f.col("high"), f.lit(False))
            | f.coalesce(f.col("low") != f.col("queue_id"), f.lit(False))
        )
        .cast("int")
        .alias("moves"),
    ).coalesce(1).write.mode("overwrite").parquet(f"{order}/batch={number}")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as text, for JSON."""
    return {
        name: value if value is None or isinstance(value, int | str) else value.isoformat()
        for name, value in row.items()
    }
