"""Which columns the sink takes, and the sentence for those it does not."""

from __future__ import annotations

import pytest

from cometmq.spark.sink import sink_options
from cometmq.spark.sink.row_columns import RowColumns, row_columns
from spark.scripted import error_of

READ = {"topic": "string", "broker": "string", "queue_id": "int", "queue_offset": "bigint"}
BODY = {"body": "binary"}


def columns(types: dict[str, str], **options: str) -> RowColumns:
    return row_columns(types, sink_options.parse({"namesrv": "ns:1", **options}))


def test_rows_as_they_were_read_have_an_origin_and_others_do_not() -> None:
    assert columns({**READ, **BODY}, topic="T").is_read
    assert not columns({"topic": "string", **BODY}).is_read
    ignored = columns({**READ, **BODY}, ignoreColumns="queue_offset")
    assert ignored == RowColumns(frozenset({"topic", "broker", "queue_id", "body"}), is_read=False)


@pytest.mark.parametrize(
    ("types", "options", "sentence"),
    [
        ({"body": "string"}, {}, "the option topic is missing, and the rows have no column topic"),
        ({**READ, **BODY}, {}, "the rows have where they were read, not where they go"),
        ({"value": "binary"}, {"topic": "T"}, "the sink does not know the columns value: drop"),
        ({"a": "int", "b": "int", **BODY}, {"topic": "T"}, "does not know the columns a, b:"),
        ({"tags": "string"}, {"topic": "T"}, "the rows have no column body"),
        ({"body": "int"}, {"topic": "T"}, "body is int; to be written it must be binary or string"),
        ({**BODY, "queue_offset": "bigint"}, {"topic": "T"}, "select topic, broker, queue_id as"),
        ({**READ, **BODY, "origin": "struct<topic:string,broker:string,queue_id:int,"
          "queue_offset:bigint>"}, {"topic": "T"}, "origin or a column queue_offset, not both"),
        ({**BODY, "broker": "string"}, {"topic": "T"}, "broker says whose queue queue_id is"),
        ({**BODY, "rejected": "int"}, {"topic": "T", "rejectedPath": "/x", "ignoreColumns":
          "rejected"}, "have a column rejected, which the table of rejectedPath adds: drop it"),
        (BODY, {"topic": "T", "ignoreColumns": "c"}, "names c: the rows have no such column"),
    ],
)  # fmt: skip
def test_other_columns_are_answered_in_a_sentence(
    types: dict[str, str], options: dict[str, str], sentence: str
) -> None:
    assert sentence in error_of(lambda: columns(types, **options))
