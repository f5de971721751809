"""Archives of real topics by real Spark: exact, whatever stops a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cometmq.cli.main import run as command_line
from cometmq.errors import (
    CometError,
    DataLoss,
    MessagesDeleted,
    RouteNotFound,
    SettingsError,
    TableHasNewerWriter,
)
from cometmq.spark.tables import compaction, table_appender
from cometmq.spark.tables.archive import ArchiveResult, archive
from cometmq.spark.tables.archive_reading import archive_files, read_archive
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_appender import TableAppender
from cometmq.spark.tables.table_files import LocalTableFiles, table_files
from spark.streams import texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cometmq.spark.tables.archived_ranges import ArchivedRanges
    from cometmq.spark.tables.commit_planning import PlannedCommit
    from spark.live import Live

    Archive = Callable[..., ArchiveResult]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "the table"


@pytest.fixture
def add(spark: SparkSession, live: Live, topic: str, place: Path) -> Archive:
    def add(**more: object) -> ArchiveResult:
        return archive(spark, topic, place, namesrv=live.namesrv, **more)

    return add


def test_each_message_is_a_row_once_with_all_that_it_had(
    spark: SparkSession, live: Live, topic: str, place: Path, add: Archive
) -> None:
    live.send(topic, 0, texts(0, 300), {"TAGS": "a", "KEYS": "k", "colour": "red"})
    live.send(topic, 1, texts(300, 400))
    assert add(max_rows=250) == ArchiveResult(rows=400, misfits=0, commits=2, merged_files=0)
    before = sorted(place.rglob("*"))
    assert add() == ArchiveResult(rows=0, misfits=0, commits=0, merged_files=0)
    assert sorted(place.rglob("*")) == before, "a run without news changes no file"
    live.send(topic, 1, texts(400, 410))
    assert add().rows == 10
    rows = read_archive(spark, place).orderBy("queue_id", "queue_offset").collect()
    assert [row.body for row in rows] == texts(0, 410)
    first = rows[0]
    assert (first.topic, first.tags, first["keys"], first.reconsume_times) == (topic, "a", "k", 0)
    assert first.properties["colour"] == "red"
    assert str(first.store_ts.date()) == first.day
    assert spark.read.parquet(*archive_files(spark, place)).count() == 410
    audit = verify_archive(spark, place, namesrv=live.namesrv, bodies=True)
    assert audit.is_exact
    assert [(one.begin, one.end, one.rows, one.compared) for one in audit.queues] == [
        (0, 300, 300, 300),
        (0, 110, 110, 110),
    ]


def test_bodies_become_fields_and_what_does_not_fit_is_kept_with_its_reason(
    spark: SparkSession, live: Live, topic: str, place: Path, add: Archive
) -> None:
    wrong = {
        b"nonsense": "the body is not JSON, or has a key twice",
        b"{'a': 1}": "the body is not JSON, or has a key twice",
        b'{"a": 1': "the body is not JSON, or has a key twice",
        b'{"a": NaN}': "the body is not JSON, or has a key twice",
        b"\xff\xfe": "the body is not UTF-8",
        b"3": "the body is no JSON object",
        b"null": "the body is no JSON object",
        b'[{"a": 1}]': "the body is no JSON object",
        b'{"a": 1} {"a": 2}': "the body goes on behind its JSON",
        b'{"a": 1},': "the body goes on behind its JSON",
        b'{"a": 1}]': "the body goes on behind its JSON",
        b'{"c": {"d": 3}, "a": 3}] and more': "the body goes on behind its JSON",
        b'{"a": 1},0] and more': "the body goes on behind its JSON",
        b'{"a": "1"}': "does not fit the schema: a",
        b'{"a": 1.5, "b": {}}': "does not fit the schema: a",
        b'{"a": 2147483648}': "does not fit the schema: a",
        b'{"a": 1, "c": {"d": "x"}}': "does not fit the schema",
        b'{"b": "x"}': "lacks a",
        b'{"a": null}': "lacks a",
    }
    fits = [b'{"a": 1, "more": 2}', b' {"a":2}\r\n\t ', b'{"c": {"d": 3}, "a": 3, "b": "}"}\n']
    live.send(topic, 0, [*wrong, *fits])
    schema = "a int not null, b string, c struct<d: int>"
    done = add(schema=schema, partition="concat('a', value.a % 2) AS parity")
    assert (done.rows, done.misfits, done.commits) == (len(fits), len(wrong), 1)
    rows = read_archive(spark, place).orderBy("value.a").collect()
    assert [(row.value.a, row.value.b, row.parity) for row in rows] == [
        (1, None, "a1"),
        (2, None, "a0"),
        (3, "}", "a1"),
    ]
    assert rows[2].value.c.d == 3
    assert len(archive_files(spark, place)) == 2, "a partition is in one file"
    assert "body" not in rows[0]
    misfits = read_archive(spark, place, misfits=True).collect()
    assert {row.body: row.reason for row in misfits} == wrong
    assert verify_archive(spark, place, namesrv=live.namesrv, bodies=True).is_exact
    with pytest.raises(SettingsError, match="the table was made with schema='a int not null"):
        add(schema="a int")


def test_a_run_goes_on_behind_what_retention_deletes_meanwhile_and_counts_all_it_added(
    live: Live, topic: str, add: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.send(topic, 0, texts(0, 90))
    write, calls = TableAppender._write, []

    def lose_the_second(table: TableAppender, plan: PlannedCommit) -> list[ArchivedRanges]:
        calls.append(plan)
        if len(calls) == 2:
            raise MessagesDeleted("gone")
        return write(table, plan)

    monkeypatch.setattr(TableAppender, "_write", lose_the_second)
    monkeypatch.setattr(table_appender, "_REPLAN_PAUSE_S", 0.0)
    done = add(max_rows=30, fail_on_data_loss=False)
    assert (done.rows, done.commits, len(calls)) == (90, 3, 4)


class _Killed(BaseException):
    """Ends a run where it stands, as a kill does; nothing may catch it."""


KILLS = ["before the manifest", "after the manifest", "before a merge"]


@pytest.mark.parametrize("point", KILLS)
def test_a_run_that_ends_at_any_point_is_repeated_exactly(
    spark: SparkSession,
    live: Live,
    topic: str,
    place: Path,
    add: Archive,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live.send(topic, 0, texts(0, 60))
    live.send(topic, 1, texts(60, 100))
    monkeypatch.setattr(compaction, "SMALL_FILES_MAX", 2)
    with monkeypatch.context() as patched:
        kill_at(patched, point)
        with pytest.raises(_Killed):
            add(max_rows=50)
    live.send(topic, 0, texts(100, 120))
    done = add(max_rows=200)
    kept = 100 if point == "before a merge" else 50 if point == "after the manifest" else 0
    assert done.rows == 120 - kept
    rows = read_archive(spark, place).collect()
    assert sorted(int(row.body) for row in rows) == list(range(120))
    assert verify_archive(spark, place, namesrv=live.namesrv).is_exact
    named = ManifestLog(LocalTableFiles(place)).current.paths()
    found = {path.relative_to(place).as_posix() for path in place.rglob("*.parquet")}
    assert found == named, "what the killed run left is gone"


def kill_at(patched: pytest.MonkeyPatch, point: str) -> None:
    """End the first run that comes to a point of a commit."""
    name, comes_after = {
        "before the manifest": ("commit", False),
        "after the manifest": ("commit", True),
        "before a merge": ("commit_merge", False),
    }[point]
    real = getattr(ManifestLog, name)

    def killed(*given: object) -> None:
        if comes_after:
            real(*given)
        raise _Killed

    patched.setattr(ManifestLog, name, killed)


def test_small_files_are_merged_and_readers_see_each_row_once(
    spark: SparkSession,
    live: Live,
    topic: str,
    place: Path,
    add: Archive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MAX", 3)
    for number in range(3):
        live.send(topic, number % 2, texts(number * 10, number * 10 + 10))
        if number == 2:
            before = read_archive(spark, place)
        done = add()
    assert done.merged_files == 3
    assert len(archive_files(spark, place)) == 1
    assert before.count() == 20, "a frame made before goes on"
    rows = read_archive(spark, place).collect()
    assert sorted(int(row.body) for row in rows) == list(range(30))
    assert verify_archive(spark, place, namesrv=live.namesrv).is_exact


def test_verify_finds_rows_that_are_missing_or_repeated_or_different(
    spark: SparkSession, live: Live, topic: str, place: Path, add: Archive
) -> None:
    live.send(topic, 0, texts(0, 50))
    add()
    live.send(topic, 1, texts(50, 60))
    add()
    live.send(topic, 1, texts(60, 65))
    files = table_files(spark, place)
    log = ManifestLog(files)
    one, other = sorted(log.current.files, key=lambda file: file.size)
    assert verify_archive(spark, place, namesrv=live.namesrv).queues[1].waiting == 5
    (place / one.path).write_bytes((place / other.path).read_bytes())
    with pytest.raises(CometError, match="Spark failed"):  # Hadoop keeps checksums of its own
        verify_archive(spark, place, namesrv=live.namesrv)
    next((place / one.path).parent.glob(".*.crc")).unlink()
    audit = verify_archive(spark, place, namesrv=live.namesrv)
    assert not audit.is_exact
    assert [(each.missing, each.repeats) for each in audit.queues] in (
        [(0, 50), (10, 0)],
        [(50, 0), (0, 10)],
    )
    live.delete_topic(topic)
    live.make_topic(topic, 2)
    audit = verify_archive(spark, place, namesrv=live.namesrv)
    assert "was archived up to 50: the topic was deleted and made anew" in audit.queues[0].problem


def test_a_topic_made_anew_is_refused_although_it_is_longer(
    live: Live, topic: str, add: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.send(topic, 0, texts(10))
    add()
    live.delete_topic(topic)
    live.make_topic(topic, 2)
    live.send(topic, 0, texts(30))
    monkeypatch.setattr(table_appender, "_REPLAN_PAUSE_S", 300.0)  # no new plan would mend it
    for strict in (True, False):
        with pytest.raises(DataLoss, match="so the topic was deleted and made anew"):
            add(fail_on_data_loss=strict)


def test_an_archive_is_the_same_in_whatever_order_its_topics_are_named(
    spark: SparkSession, live: Live, topic: str, place: Path
) -> None:
    other = live.make_topic(f"{topic}other", 1)
    for name in (topic, other):
        live.send(name, 0, texts(0, 5))
    for names, rows in (((topic, other), 10), ((other, topic), 0)):
        assert archive(spark, names, place, namesrv=live.namesrv).rows == rows
    with pytest.raises(SettingsError, match=f"the table was made with topics='topics {topic}, "):
        archive(spark, topic, place, namesrv=live.namesrv)


def test_wrong_calls_are_one_sentence_errors(
    spark: SparkSession, live: Live, topic: str, place: Path, add: Archive
) -> None:
    live.send(topic, 0, texts(1))
    with pytest.raises(SettingsError, match="is no DDL of Spark"):
        add(schema="a nothing")
    with pytest.raises(SettingsError, match="give it another name"):
        add(partition="upper(topic) AS topic")
    with pytest.raises(SettingsError, match="the option startingOffsets of the source cannot be"):
        add(options={"startingOffsets": "latest"})
    with pytest.raises(SettingsError, match=r"max_rows is 0: it must be at least 1"):
        add(max_rows=0)
    with pytest.raises(RouteNotFound, match="topic Nowhere does not exist"):
        archive(spark, "Nowhere", place, namesrv=live.namesrv, options={"retryForMs": "0"})
    with pytest.raises(SettingsError, match=r"the directory 'a\*' cannot hold a table"):
        archive(spark, topic, "a*", namesrv=live.namesrv)
    assert not place.exists()


def test_hadoops_file_systems_keep_manifests_as_the_local_disk_does(
    spark: SparkSession, place: Path
) -> None:
    from cometmq.spark.tables.table_files import HadoopTableFiles

    files = HadoopTableFiles(spark, str(place))
    first, second = ManifestLog(files), ManifestLog(files)
    second.begin({}, {})
    assert ManifestLog(LocalTableFiles(place)).current == second.current
    with pytest.raises(TableHasNewerWriter):
        first.begin({}, {})
    (place / "data" / "commit=2-x").mkdir(parents=True)
    (place / "data" / "commit=2-x" / "a.parquet").write_bytes(b"1234")
    assert files.data_files("data") == [("data/commit=2-x/a.parquet", 4)]
    ManifestLog(files).begin({}, {})
    assert files.names("data") == []
    assert files.data_files("data") == []
    assert files.names("nowhere") == []


def test_the_commands_archive_verify_and_fail_where_rows_are_missing(
    live: Live, topic: str, spark: SparkSession, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    live.send(topic, 0, texts(0, 20))
    common = ("-n", live.namesrv, "--json")
    assert command_line(["pipeline", "archive", topic, str(place), *common]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out) == {"rows": 20, "misfits": 0, "commits": 1, "merged_files": 0}
    assert command_line(["pipeline", "verify", str(place), *common, "--bodies"]) == 0
    audit = json.loads(capfd.readouterr().out)
    assert audit["is_exact"]
    assert audit["queues"][0]["compared"] == 20
    (file,) = ManifestLog(LocalTableFiles(place)).current.files
    (place / file.path).unlink()
    assert command_line(["pipeline", "verify", str(place), "-n", live.namesrv]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["topic", "broker", "queue_id"]
    assert lines[-2:] == [f"the file {file.path} is missing", "1 queues are not exact"]
