"""The manifests of one archive: the newest is read, and the next one is written by one job only.

A job that begins to write puts a manifest of its own first: from then on no job that began earlier
can commit, and what those left behind may be deleted. So a job that was killed needs no lock to be
broken.
Invariant: version N+1 is made from version N, by one job; no file that a manifest of the last
`REPLACED_KEPT_S` names is deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cometmq.errors import CometError, TableHasNewerWriter
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.tables.manifest import DEAD, ROWS, DataFile, Manifest, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.tables.archived_ranges import ArchivedQueues
    from cometmq.spark.tables.table_files import TableFiles

FOLDER = "_manifests"
REPLACED_KEPT_S = 3600.0
"""How long files that were merged into others stay for those who still read them."""

_COMMIT = re.compile(r"commit=(\d+)-")
_KEPT = 8
"""Manifests that are kept, the newest one included."""


class ManifestLog:
    """Reads and writes the manifests of one archive; `current` is what was read or written last."""

    def __init__(
        self,
        files: TableFiles,
        replaced_kept_s: float = REPLACED_KEPT_S,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.files = files
        self._now_ms = now_ms or SystemClock().now_ms
        self._replaced_kept_s = replaced_kept_s
        self._settings: Mapping[str, Any] = {}
        self._schemas: Mapping[str, Any] = {}
        self.current = self._newest()

    @property
    def archived(self) -> ArchivedQueues:
        """What the archive holds."""
        return self.current.archived

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same in every run; empty before the first commit."""
        return self.current.settings

    @property
    def place(self) -> str:
        """Where the archive is, for messages."""
        return self.files.uri

    @property
    def version(self) -> int:
        """Of the newest commit; 0 where there is no archive."""
        return self.current.version

    def missing_files(self) -> tuple[str, ...]:
        """Files that the manifest names and the directory lacks."""
        there = {path for kind in (ROWS, DEAD) for path, _ in self.files.data_files(kind)}
        return tuple(one.path for one in self.current.files if one.path not in there)

    def frame(self, spark: SparkSession, kind: str, but: Collection[str] = ()) -> DataFrame:
        """All rows of a kind as they are now, `but` those in some files. Raises CometError."""
        return self.frame_of(
            spark,
            kind,
            [one for one in self.current.files if one.kind == kind and one.path not in but],
        )

    def frame_of(self, spark: SparkSession, kind: str, files: Iterable[DataFile]) -> DataFrame:
        """The rows of some files of one kind, with all columns, the partition's included."""
        from pyspark.sql.types import StructType

        schema: Any = self.current.schemas.get(kind)
        if schema is None:
            raise CometError(
                f"there is no archive in {self.place}: make one with `cometmq pipeline archive`"
            )
        columns = StructType.fromJson(schema)
        paths = [f"{self.files.uri}/{one.path}" for one in files]
        if not paths:
            return spark.createDataFrame([], columns)
        reader = spark.read.schema(columns).option("basePath", f"{self.files.uri}/{kind}")
        return reader.parquet(*paths).select(*columns.fieldNames())

    def begin(self, settings: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
        """Shut out jobs that began earlier, and delete what they left; raises TableHasNewerWriter.

        Settings and schemas are those of the commits to come.
        """
        self._settings, self._schemas = settings, schemas
        oldest_ms = self._now_ms() - round(self._replaced_kept_s * 1000)
        for path, at_ms in self.current.replaced:
            if at_ms < oldest_ms:
                self.files.delete(path)
        self._put(self.current.taken_over(oldest_ms))
        self._delete_leftovers()

    def new_commit(self) -> str:
        """A name for the directories of the next commit, never used before."""
        return f"commit={self.current.version + 1}-{uuid4().hex[:12]}"

    def uri(self, kind: str, commit: str) -> str:
        """The directory to which Spark writes files of a kind."""
        return f"{self.files.uri}/{kind}/{commit}"

    def written(self, commit: str) -> list[DataFile]:
        """The files that Spark wrote for a commit, on disk."""
        found = [
            DataFile(path, size)
            for kind in (ROWS, DEAD)
            for path, size in self.files.data_files(f"{kind}/{commit}")
        ]
        self.files.sync(one.path for one in found)
        return found

    def commit(self, archived: ArchivedQueues, files: Sequence[DataFile]) -> None:
        """Add files and the offsets that they hold, all at once; raises TableHasNewerWriter."""
        self._put(self.current.added(archived, files, self._settings, self._schemas))

    def commit_merge(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        """Put files in place of others with the same rows; raises TableHasNewerWriter."""
        self._put(self.current.merged(old, new, self._now_ms()))

    def _put(self, manifest: Manifest) -> None:
        name = _name(manifest.version)
        if not self.files.create(f"{FOLDER}/{name}", manifest.encode()):
            raise self._taken()
        versions = self._versions()
        if versions[-1] != name:  # ours was made where an old one had been deleted
            raise self._taken()
        self.current = manifest
        for old in versions[:-_KEPT]:
            self.files.delete(f"{FOLDER}/{old}")

    def _taken(self) -> TableHasNewerWriter:
        return TableHasNewerWriter(
            f"another job has written to the table {self.files.uri} meanwhile: let only one run "
            "at a time; what this one had not committed is read again by the next run"
        )

    def _delete_leftovers(self) -> None:
        """Delete the directories of commits that were not made, or whose files were all merged.

        A later number is that of a job that has begun since: what that writes is not ours.
        """
        commits = {DataFile(path, 0).commit for path in self.current.paths()}
        for kind in (ROWS, DEAD):
            for name in self.files.names(kind):
                number = _COMMIT.match(name)
                is_later = number is not None and int(number[1]) > self.version
                if not is_later and f"{kind}/{name}" not in commits:
                    self.files.delete(f"{kind}/{name}")

    def _newest(self) -> Manifest:
        versions = self._versions()
        if not versions:
            return Manifest()
        path = f"{FOLDER}/{versions[-1]}"
        return decode(self.files.read(path), f"{self.files.uri}/{path}")

    def _versions(self) -> list[str]:
        return [
            name
            for name in self.files.names(FOLDER)
            if name.endswith(".json") and not name.startswith(".")
        ]


def _name(version: int) -> str:
    return f"{version:020d}.json"
