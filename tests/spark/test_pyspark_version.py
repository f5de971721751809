"""An older PySpark is refused in one sentence."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import cometmq.spark
from cometmq.spark.data_source import RocketMQSource
from cometmq.spark.pyspark_version import require_pyspark
from cometmq.spark.session import spark_session
from spark.scripted import error_of

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING: Any = None
SOURCE = RocketMQSource({"topic": "T", "namesrv": "127.0.0.1:1"})


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "3.5.1", "4.1.0.dev2"])
def test_an_older_pyspark_is_refused(version: str) -> None:
    said = error_of(lambda: require_pyspark(version))
    assert f"cometmq needs PySpark 4.2 or later and finds {version}: pip install" in said


def test_newer_ones_are_taken() -> None:
    for version in ("4.2.0", "4.2.1.dev1", "4.10.0", "5.0.0", None):
        require_pyspark(version)


@pytest.mark.parametrize(
    "use",
    [
        SOURCE.schema,
        lambda: SOURCE.reader(NOTHING),
        lambda: SOURCE.streamReader(NOTHING),
        lambda: SOURCE.writer(NOTHING, overwrite=False),
        lambda: SOURCE.streamWriter(NOTHING, overwrite=False),
        lambda: spark_session("old"),
        lambda: cometmq.spark.deduplicated(NOTHING),
        lambda: cometmq.spark.listen(NOTHING, "g", "T", "*", print, checkpoint="c"),
    ],
)
def test_whatever_is_used_first_says_so_instead_of_what_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    for name in ("pyspark.sql.streaming.datasource", "cometmq.spark.source.stream_reader"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "cometmq needs PySpark 4.2 or later and finds 4.1.4: pip install" in error_of(use)
