"""One Spark session and one broker for the tests of this folder that need them.

Connections that the planner's and the tasks' cache holds are closed after each test.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from cometmq.spark.session import spark_session
from cometmq.spark.sink import producers
from spark.live import Live, TwoBrokers
from spark.scripted import forget_clients
from spark.standalone import StandaloneCluster
from spark.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    forget_clients()
    producers.stop_all()


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    levels = " ".join(["1s"] * 20)
    with Live(tmp_path_factory.mktemp("live"), message_delay_level=levels) as broker:
        yield broker


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    session = spark_session(
        "tests",
        cores=2,
        heap_mb=768,
        conf={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoBrokers]:
    """A name server with two brokers, of which either may be killed."""
    with TwoBrokers(tmp_path / "a") as brokers:
        brokers.start_second()
        yield brokers
        brokers.second.kill()


@pytest.fixture
def topic(live: Live) -> str:
    return live.make_topic(f"Topic{next(_numbers)}", 2)


@pytest.fixture
def load(spark: SparkSession, live: Live, topic: str) -> Callable[..., DataFrame]:
    def load(**more: str) -> DataFrame:
        given = {"namesrv": live.namesrv, "topic": topic, **more}
        return spark.read.format("rocketmq").options(**given).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, live: Live, topic: str, tmp_path: Path) -> Stream:
    options = {"namesrv": live.namesrv, "topic": topic, "startingOffsets": "earliest"}
    return Stream(spark, options, tmp_path)
