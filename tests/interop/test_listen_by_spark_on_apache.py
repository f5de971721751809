"""`listen` with Spark itself over topics of Apache RocketMQ's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pyspark import cloudpickle

from interop.on_spark import ON_SPARK, OnApache
from spark import handler_plans
from spark.planned_case import PlannedCase, run_both_on_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from interop.apache import ApacheCluster
    from spark.live import Live

pytestmark = ON_SPARK


@pytest.fixture(autouse=True, scope="module")
def _plans_travel_by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(handler_plans)
    yield
    cloudpickle.unregister_pickle_by_value(handler_plans)


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_plan_ends_as_with_a_push_consumer_though_a_worker_dies(
    apache: ApacheCluster, spark: SparkSession, tmp_path: Path, order: str
) -> None:
    live = cast("Live", OnApache(apache))
    run_both_on_spark(spark, PlannedCase(live, tmp_path, 3, order, seed=400))
