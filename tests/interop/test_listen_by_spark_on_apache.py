"""`listen` with Spark itself over topics of Apache RocketMQ's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pyspark import cloudpickle

from cometmq.spark.session import spark_session
from interop.test_listen_on_apache import OnApache
from spark import handler_plans
from spark.planned_case import PlannedCase, run_both_on_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.apache import ApacheCluster
    from spark.live import Live

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(handler_plans)
    session = spark_session("interop-listen", cores=2, heap_mb=512)
    yield session
    session.stop()
    cloudpickle.unregister_pickle_by_value(handler_plans)


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_plan_ends_as_with_a_push_consumer_though_a_worker_dies(
    apache: ApacheCluster, spark: SparkSession, tmp_path: Path, order: str
) -> None:
    live = cast("Live", OnApache(apache))
    run_both_on_spark(spark, PlannedCase(live, tmp_path, 3, order, seed=400))
