"""The option that carries handlers to the tasks of a streaming read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from cometmq.client.consumer.push_options import push_options
from cometmq.spark.connection_security import security_of
from cometmq.spark.data_source import RocketMQSource
from cometmq.spark.handling import job_option
from cometmq.spark.handling.batch_runner import outcomes
from cometmq.spark.handling.handler_settings import HandlerJob
from cometmq.spark.handling.handling_reader import HandlingReader
from cometmq.spark.option_reader import OptionReader
from spark.scripted import error_of

if TYPE_CHECKING:
    import pytest

WHERE = {"namesrv": "127.0.0.1:1", "topic": "T"}


def job_of(pickled: bytes) -> HandlerJob:
    client, options = push_options("g", {"namesrv": WHERE["namesrv"]}, os.environ)
    return HandlerJob(
        job_id="1",
        topic="T",
        pickled=pickled,
        client=client,
        security=security_of(OptionReader({}, ())),
        group=options.group,
        is_in_order=False,
        wait_most_s=1.0,
    )


def test_a_read_with_handlers_has_outcomes_for_rows_and_unpickles_no_handler_before_its_tasks() -> (
    None
):
    text = job_option.text_of(job_of(b"no pickle"))
    source = RocketMQSource({**WHERE, job_option.OPTION.upper(): text})
    assert source.schema() == job_option.OUTCOME_DDL
    assert isinstance(source.streamReader(StructType()), HandlingReader)
    assert RocketMQSource(WHERE).schema() != job_option.OUTCOME_DDL


def test_a_batch_read_knows_no_handlers() -> None:
    source = RocketMQSource({**WHERE, job_option.OPTION: job_option.text_of(job_of(b""))})
    assert "no option handlers" in error_of(lambda: source.reader(StructType()))


def test_each_message_is_a_row_without_content_and_a_problem_is_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "cometmq.spark.handling.batch_runner.handle", lambda *_: (25_000, "a broker is away")
    )
    rows = [row for batch in outcomes(job_of(b""), ()) for row in batch.column(0).to_pylist()]
    assert len(rows) == 25_001
    assert [row for row in rows if row is not None] == ["a broker is away"]
