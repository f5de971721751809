"""Archives that are tables of Iceberg, in a catalog on a local disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import SettingsError, TableHasNewerWriter
from cometmq.spark.tables.archive import ArchiveResult, archive
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.archive_verification import verify_archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark.live import Live

pytest.importorskip("pyiceberg", reason="pip install 'cometmq[iceberg]'")

from cometmq.spark.tables.iceberg_log import RANGES, IcebergLog

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
]
NAME = "lake.readings"


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    place = tmp_path / "warehouse"
    place.mkdir()
    return SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{place}")


@pytest.fixture
def add(spark: SparkSession, live: Live, topic: str, catalog: Any) -> Callable[..., ArchiveResult]:
    def add(**more: Any) -> ArchiveResult:
        given = {"schema": "n int", "iceberg": catalog, "namesrv": live.namesrv, **more}
        return archive(spark, topic, NAME, **given)

    return add


def bodies(*numbers: int) -> list[bytes]:
    """Every tenth is a misfit."""
    return [b'{"n": %d}' % n if n % 10 else b"%d" % n for n in range(*numbers)]


def test_rows_and_misfits_are_two_tables_with_the_offsets_in_their_snapshots(
    spark: SparkSession, live: Live, topic: str, catalog: Any, add: Callable[..., ArchiveResult]
) -> None:
    live.send(topic, 0, bodies(0, 60))
    live.send(topic, 1, bodies(60, 100))
    assert add(max_rows=60) == ArchiveResult(rows=90, misfits=10, commits=2, merged_files=0)
    assert add().commits == 0
    live.send(topic, 1, bodies(100, 120))
    assert add().rows == 18
    rows = catalog.load_table(NAME)
    found = rows.scan().to_arrow()
    assert sorted(each["n"] for each in found["value"].to_pylist()) == [
        n for n in range(120) if n % 10
    ]
    assert [field.name for field in rows.spec().fields] == ["day"]
    assert rows.scan(row_filter="queue_id = 1").to_arrow().num_rows == 54
    misfits = catalog.load_table(f"{NAME}_dead").scan().to_arrow()
    assert sorted(int(body) for body in misfits["body"].to_pylist()) == list(range(0, 120, 10))
    assert set(misfits["reason"].to_pylist()) == {"the body is no JSON object"}
    ranges = [json.loads(one.summary.additional_properties[RANGES]) for one in rows.snapshots()]
    broker = next(iter(ranges[-1][topic])).partition(":")[0]
    assert ranges[-1] == {topic: {f"{broker}:1": [40, 60]}}
    assert len(ranges) == 3
    audit = verify_archive(spark, NAME, iceberg=catalog, namesrv=live.namesrv, bodies=True)
    assert audit.is_exact
    assert sum(one.compared or 0 for one in audit.queues) == 120
    assert read_archive(spark, NAME, iceberg=catalog).count() == 108


class _Killed(BaseException):
    """Ends a run where it stands, as a kill does."""


def test_a_run_that_ends_between_misfits_and_rows_is_repeated_exactly(
    spark: SparkSession,
    live: Live,
    topic: str,
    catalog: Any,
    add: Callable[..., ArchiveResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyiceberg.table import Transaction

    live.send(topic, 0, bodies(0, 50))

    def kill(number: int) -> None:
        """End a run in the nth transaction that adds files: misfits first, then rows."""
        real, calls = Transaction.add_files, []

        def killed(*given: Any, **more: Any) -> None:
            calls.append(1)
            if len(calls) == number:
                raise _Killed
            real(*given, **more)

        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "add_files", killed)
            with pytest.raises(_Killed):
                add()

    kill(2)
    dead = f"{NAME}_dead"
    assert catalog.load_table(dead).scan().to_arrow().num_rows == 5, "misfits came first"
    live.send(topic, 0, bodies(50, 70))
    assert (add().rows, add().rows) == (63, 0)
    live.send(topic, 0, bodies(70, 100))
    kill(2)
    assert add().rows == 27
    misfits = catalog.load_table(dead).scan().to_arrow()
    assert sorted(int(body) for body in misfits["body"].to_pylist()) == list(range(0, 100, 10))
    assert verify_archive(spark, NAME, iceberg=catalog, namesrv=live.namesrv).is_exact


def test_two_jobs_at_a_time_do_not_add_the_same_rows(
    spark: SparkSession, live: Live, topic: str, catalog: Any, add: Callable[..., ArchiveResult]
) -> None:
    live.send(topic, 0, bodies(0, 20))
    add()
    live.send(topic, 0, bodies(20, 40))
    late = IcebergLog(spark, catalog, NAME)
    commit = late.new_commit()
    assert add().rows == 18
    (one,) = read_archive(spark, NAME, iceberg=catalog).where("queue_offset = 5").collect()
    assert one.value.n == 5
    with pytest.raises(TableHasNewerWriter, match="let only one run at a time"):
        late.commit(late.archived, late.written(commit))
    assert verify_archive(spark, NAME, iceberg=catalog, namesrv=live.namesrv).is_exact
    with pytest.raises(SettingsError, match=r"write NAMESPACE\.TABLE"):
        archive(spark, topic, "readings", iceberg=catalog, namesrv=live.namesrv)


def begin_another(log: IcebergLog) -> None:
    """A job that begins, with what the table was made with."""
    log.begin(log.settings, {})


def commit_nothing(log: IcebergLog) -> None:
    """A job whose rows have no misfits."""
    log.commit(log.archived, [])


@pytest.mark.parametrize("meanwhile", [begin_another, commit_nothing])
def test_a_job_between_misfits_and_rows_of_another_leaves_no_misfit_without_its_rows(
    spark: SparkSession,
    live: Live,
    topic: str,
    catalog: Any,
    add: Callable[..., ArchiveResult],
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[IcebergLog], None],
) -> None:
    from pyiceberg.table import Transaction

    live.send(topic, 0, bodies(0, 20))
    add()
    live.send(topic, 0, bodies(20, 40))
    before = IcebergLog(spark, catalog, NAME)
    real, calls = Transaction.add_files, []

    def interrupted(*given: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            late = meanwhile is begin_another
            meanwhile(IcebergLog(spark, catalog, NAME) if late else before)
        real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "add_files", interrupted)
        with pytest.raises(TableHasNewerWriter, match="let only one run at a time"):
            add()
    assert add().rows == 18
    misfits = catalog.load_table(f"{NAME}_dead").scan().to_arrow()
    assert sorted(int(body) for body in misfits["body"].to_pylist()) == [0, 10, 20, 30]
    assert verify_archive(spark, NAME, iceberg=catalog, namesrv=live.namesrv).is_exact
