"""What `listen` refuses before a query starts, and what it hands to the source."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import ClientError, MessageSelector, OnFailure, SettingsError
from cometmq.spark.handling import listen as listens
from spark.handler_plans import Plan, PlannedHandler

if TYPE_CHECKING:
    from spark.live import Live

pytestmark = pytest.mark.spark


def handle(messages: list[Any]) -> None: ...


def refused(**settings: Any) -> str:
    handler, source = settings.pop("handler", handle), settings.pop("source", {})
    wait_most_s = settings.pop("wait_most_s", 60.0)
    with pytest.raises((SettingsError, ClientError, TypeError)) as error:
        listens.prepare(
            "g", "T", "*", handler, source, wait_most_s, namesrv="127.0.0.1:1", **settings
        )
    return str(error.value)


def test_what_a_batch_cannot_wait_for_is_refused_in_order() -> None:
    assert "cannot wait for it: say max_attempts=3" in refused(order="key")
    block = {ValueError: OnFailure.block(), Exception: OnFailure.skip()}
    assert "fails with ValueError would be tried for ever" in refused(
        orderly=True, on_failure=block
    )
    slow = OnFailure.retry(10, pause_ms=10_000)
    assert "pauses for more than wait_most_s=60 in all" in refused(order="queue", on_failure=slow)
    assert "wait_most_s is 0" in refused(wait_most_s=0)


def test_what_has_no_meaning_on_spark_is_refused() -> None:
    assert "broadcasting has no meaning" in refused(broadcasting=True)
    assert "there is no setting 'max_attempt'; did you mean max_attempts?" in refused(max_attempt=1)
    assert "splits queues" in refused(order="key", max_attempts=2, source={"minpartitions": "8"})
    assert "listen sets itself" in refused(source={"startingOffsets": "latest"})
    assert "order='none' has none" in refused(on_failure=OnFailure.divert())


@pytest.mark.parametrize("trigger", [{"continuous": "1 second"}, {"realTime": "5 minutes"}])
def test_triggers_that_refuse_python_are_refused_with_what_to_do(trigger: dict[str, str]) -> None:
    with pytest.raises(
        SettingsError, match="refuses sources written in Python: say processingTime"
    ):
        listens.listen(None, "g", "T", "*", handle, checkpoint="nowhere", trigger=trigger)  # type: ignore[arg-type]


def test_what_cannot_be_called_or_sent_is_refused() -> None:
    assert "cannot be sent to Spark's workers: cannot pickle" in refused(
        handler=PlannedHandler(Plan((), {}), threading.Lock())  # type: ignore[arg-type]
    )
    assert "is no function of a list of messages" in refused(handler=7)


def test_the_source_reads_the_topic_and_the_retry_topic_of_the_group(
    live: Live, topic: str
) -> None:
    condition = MessageSelector.by_sql("price > 10")
    job, read = listens.prepare(
        "g", topic, condition, handle, {"slots": "3"}, 5.0, namesrv=live.namesrv, order="none"
    )
    assert read.pop("startingOffsets").startswith("{")
    assert read == {
        "slots": "3",
        "sql": "price > 10",
        "namesrv": live.namesrv,
        "subscribe": f"{topic},%RETRY%g",
        "group": "g",
        "commitOffsets": "true",
        "columns": "broker,record",
    }
    assert (job.topic, job.group, job.is_in_order, job.wait_most_s) == (topic, "g", False, 5.0)
