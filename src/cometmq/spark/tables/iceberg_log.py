"""The commits of an archive that is a table of Iceberg: snapshots, with the offsets in properties.

Spark writes the Parquet files, pyiceberg adds them: rows to the table NAME, misfits to NAME_dead.
How far the archive is stands in a property of NAME, set in the transaction that adds the rows; each
snapshot has the ranges that it added. Misfits are added first; another property of NAME, set with
the rows, says which ones count. When the rows never came, the next run takes the misfits back, so
the two tables agree whenever a job is at work.
Invariant: a commit is made on the snapshot that this job knows, or not at all: pyiceberg would
repeat it on another job's, so its retries are switched off.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import DayTransform, HourTransform

from cometmq.errors import CometError, SettingsError, TableHasNewerWriter
from cometmq.spark.source.topic_selection import queue_key
from cometmq.spark.tables.archived_ranges import ArchivedQueues
from cometmq.spark.tables.manifest import DEAD, ROWS, DataFile
from cometmq.spark.tables.table_files import table_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ARCHIVED, RANGES, VERSION = "cometmq-archived", "cometmq-ranges", "cometmq-version"
"""Properties: of the table what it holds; of a snapshot what it added, and its number."""

_COMMIT, _MISFITS = "cometmq-commit", "cometmq-misfits"
"""Properties: of a snapshot which commit made it; of NAME the newest commit with misfits."""
_SETTINGS = "cometmq-settings"
_TIME_ZONE = "spark.sql.session.timeZone"
_RETRIES = "commit.retry.num-retries"
_TRANSFORMS = {"day": DayTransform(), "hour": HourTransform()}


class IcebergLog:
    """One archive in a catalog; one job at a time adds to it."""

    def __init__(self, spark: SparkSession, catalog: Catalog, name: str) -> None:
        """`name` is namespace and table, `lake.orders`; neither need exist."""
        if "." not in name:
            raise SettingsError(f"{name} is no table of Iceberg: write NAMESPACE.TABLE")
        self._spark = spark
        self._catalog = catalog
        self._names = {ROWS: name, DEAD: f"{name}_dead"}
        self._tables: dict[str, Table] = {}
        self._load()

    @property
    def place(self) -> str:
        """Which table it is, for messages."""
        return self._names[ROWS]

    @property
    def archived(self) -> ArchivedQueues:
        """What the table holds."""
        text = self._properties().get(ARCHIVED)
        return ArchivedQueues.from_json(json.loads(text)) if text else ArchivedQueues()

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run."""
        text = self._properties().get(_SETTINGS)
        return dict(json.loads(text)) if text else {}

    @property
    def version(self) -> int:
        """The number of the newest commit."""
        return int(self._properties().get(VERSION, 0))

    def begin(self, settings: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
        """Make the tables if they are not there, and take back misfits whose rows never came.

        Files that a killed job left are in no snapshot; maintenance of the catalog removes them.
        """
        partition = settings["partition"]
        if partition != "none" and partition not in _TRANSFORMS:
            raise SettingsError(
                f"a table of Iceberg is partitioned by day, hour or none, not by {partition!r}"
            )
        namespace = self._names[ROWS].rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        for kind, name in self._names.items():
            if kind not in self._tables:
                by = partition if kind == ROWS else "none"
                self._tables[kind] = self._made(name, schemas[kind], by, settings)
            table = self._tables[kind]
            if table.properties.get(_RETRIES) != "0":
                table.transaction().set_properties({_RETRIES: "0"}).commit_transaction()
        self._take_back()

    def new_commit(self) -> str:
        """A name for the directories of the next commit, never used before."""
        return f"commit={self.version + 1}-{uuid4().hex[:12]}"

    def uri(self, kind: str, commit: str) -> str:
        """The directory to which Spark writes files of a kind."""
        return f"{self._tables[kind].location()}/data/{commit}"

    def written(self, commit: str) -> list[DataFile]:
        """The files that Spark wrote for a commit, on disk."""
        found = []
        for kind, table in self._tables.items():
            files = table_files(self._spark, table.location())
            paths = files.data_files(f"data/{commit}")
            files.sync(path for path, _ in paths)
            found += [DataFile(f"{kind}/{path}", size) for path, size in paths]
        return found

    def commit(self, archived: ArchivedQueues, files: Sequence[DataFile]) -> None:
        """Add files and the offsets that they hold; raises TableHasNewerWriter."""
        number, name = str(self.version + 1), uuid4().hex
        ranges = json.dumps(_added(self.archived, archived))
        added = {VERSION: number, RANGES: ranges, _COMMIT: name}
        state = {ARCHIVED: json.dumps(archived.as_json()), VERSION: number}
        for kind in (DEAD, ROWS):
            table = self._tables[kind]
            paths = [
                f"{table.location()}/{one.path.partition('/')[2]}"
                for one in files
                if one.kind == kind
            ]
            if kind == DEAD and not paths:
                continue
            if kind == DEAD:
                state[_MISFITS] = name
            self._add(kind, paths, added, state if kind == ROWS else {})

    def _add(
        self, kind: str, paths: list[str], added: dict[str, str], state: dict[str, str]
    ) -> None:
        """Make the next snapshot; raises TableHasNewerWriter when this job knows another one."""
        change = self._tables[kind].transaction()
        try:
            change.add_files(paths, snapshot_properties=added, check_duplicate_files=False)
            if state:
                change.set_properties(state)
            change.commit_transaction()
        except CommitFailedException as error:
            raise TableHasNewerWriter(
                f"another job has written to the table {self._names[kind]} meanwhile: let only one "
                "run at a time; what this one had not committed is read again by the next"
            ) from error

    def missing_files(self) -> tuple[str, ...]:
        """None: Spark says so when it reads."""
        return ()

    def frame(self, spark: SparkSession, kind: str, but: Collection[str] = ()) -> DataFrame:
        """All rows of a kind as they are now, `but` those in some files. Raises CometError.

        Deletes by row, which this job never makes, are not seen.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        table = self._tables.get(kind)
        if table is None:
            raise CometError(f"there is no archive {self.place} in the catalog")
        columns = from_arrow_schema(table.schema().as_arrow())
        paths = [task.file.file_path for task in table.scan().plan_files()]
        paths = [path for path in paths if path not in but]
        if not paths:
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).parquet(*paths).select(*columns.fieldNames())

    def _load(self) -> None:
        for kind, name in self._names.items():
            try:
                self._tables[kind] = self._catalog.load_table(name)
            except NoSuchTableError:
                continue

    def _properties(self) -> Mapping[str, str]:
        table = self._tables.get(ROWS)
        return table.properties if table else {}

    def _made(
        self, name: str, schema: dict[str, Any], partition: str, settings: Mapping[str, Any]
    ) -> Table:
        from pyspark.sql.types import StructType

        fields = StructType.fromJson(schema)
        if partition != "none":  # the table's own partition takes the place of this column
            fields = StructType(fields.fields[:-1])
        table = self._catalog.create_table(
            name,
            self._arrow_schema(fields),
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            properties={_SETTINGS: json.dumps(settings), _RETRIES: "0"},
        )
        if partition != "none":
            with table.update_spec() as change:
                change.add_field("store_ts", _TRANSFORMS[partition], partition)
        return table

    def _arrow_schema(self, fields: StructType) -> pa.Schema:
        """The columns as Arrow, times in UTC, which pyiceberg insists on."""
        before = self._spark.conf.get(_TIME_ZONE)
        self._spark.conf.set(_TIME_ZONE, "UTC")
        try:
            return self._spark.createDataFrame([], fields).toArrow().schema
        finally:
            self._spark.conf.set(_TIME_ZONE, before)

    def _take_back(self) -> None:
        """Undo the newest commit of misfits when the rows that go with it were never added.

        A snapshot of the rows comes first, without any: from then on whoever is still about to add
        them cannot.
        """
        dead = self._tables[DEAD]
        newest = dead.current_snapshot()
        if newest is None or newest.summary is None:
            return
        name = newest.summary.additional_properties.get(_COMMIT)
        if name is None or name == self._properties().get(_MISFITS):
            return
        self._add(ROWS, [], {VERSION: str(self.version), RANGES: "{}"}, {})
        if newest.parent_snapshot_id is None:
            dead.delete(AlwaysTrue())
        else:
            dead.manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()
        self._tables[DEAD] = self._catalog.load_table(self._names[DEAD])


def _added(before: ArchivedQueues, after: ArchivedQueues) -> dict[str, dict[str, list[int]]]:
    """By topic and queue, the range that a commit adds."""
    found: dict[str, dict[str, list[int]]] = {}
    for queue, one in after.queues.items():
        old = before.queues.get(queue)
        if old != one:
            begin = max(old.end, one.ranges[-1][0]) if old else one.begin
            found.setdefault(queue.topic, {})[queue_key(queue)] = [begin, one.end]
    return found
