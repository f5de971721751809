"""The manifest of an archive: which data files belong to it, and which offsets they hold.

Layout of an archive, all names relative to its directory:
    _manifests/00000000000000000007.json        the newest one is the truth
    data/commit=7-4f2a.../day=2026-11-22/part-*.parquet
    dead/commit=7-4f2a.../part-*.parquet        misfits
A data file that the newest manifest does not name is not part of the archive.
Pure values; `manifest_log` reads and writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cometmq.errors import CometError
from cometmq.spark.tables.archived_ranges import ArchivedQueues

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FORMAT = 1
ROWS, DEAD = "data", "dead"
"""The two kinds of files, and their folders."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of an archive."""

    path: str
    """Relative to the directory of the archive."""
    size: int
    """Bytes."""

    @property
    def kind(self) -> str:
        """ROWS or DEAD."""
        return self.path.partition("/")[0]

    @property
    def commit(self) -> str:
        """The directory of the commit that wrote it."""
        return "/".join(self.path.split("/", 2)[:2])

    @property
    def partition(self) -> str:
        """Kind and partition: files of one partition may be merged."""
        parts = self.path.split("/")
        return "/".join([parts[0], *parts[2:-1]])


@dataclass(frozen=True, slots=True)
class Manifest:
    """One state of an archive."""

    version: int = 0
    """0 is the archive that does not exist yet."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What must be the same in every run."""
    schemas: dict[str, Any] = field(default_factory=dict)
    """By kind, the schema of all columns as Spark's JSON."""
    archived: ArchivedQueues = field(default_factory=ArchivedQueues)
    files: tuple[DataFile, ...] = ()
    replaced: tuple[tuple[str, int], ...] = ()
    """Files that were merged into others, and when (ms): readers may still have them open."""

    def paths(self) -> set[str]:
        """Every file that may not be deleted."""
        return {one.path for one in self.files} | {path for path, _ in self.replaced}

    def added(
        self,
        archived: ArchivedQueues,
        files: Sequence[DataFile],
        settings: Mapping[str, Any],
        schemas: Mapping[str, Any],
    ) -> Manifest:
        """The next state, with more data."""
        return replace(
            self,
            version=self.version + 1,
            archived=archived,
            files=(*self.files, *files),
            settings=dict(settings),
            schemas=dict(schemas),
        )

    def merged(self, old: Collection[DataFile], new: Sequence[DataFile], now_ms: int) -> Manifest:
        """The next state, with some files in place of others that held the same rows."""
        gone = set(old)
        return replace(
            self,
            version=self.version + 1,
            files=(*(one for one in self.files if one not in gone), *new),
            replaced=(*self.replaced, *((one.path, now_ms) for one in old)),
        )

    def taken_over(self, oldest_ms: int) -> Manifest:
        """The next state with the same data; forgets files that were replaced before a time."""
        kept = tuple((path, at) for path, at in self.replaced if at >= oldest_ms)
        return replace(self, version=self.version + 1, replaced=kept)

    def encode(self) -> bytes:
        """The file's content."""
        value = {
            "format": FORMAT,
            "version": self.version,
            "settings": self.settings,
            "archived": self.archived.as_json(),
            "files": [[one.path, one.size] for one in self.files],
            "replaced": [list(one) for one in self.replaced],
            "schemas": self.schemas,
        }
        return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes, name: str) -> Manifest:
    """The manifest in a file; raises CometError when it is none that this release reads."""
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise CometError(
                f"{name} has format {value['format']}, written by another release: this one reads "
                f"format {FORMAT}"
            )
        return Manifest(
            version=int(value["version"]),
            settings=value["settings"],
            schemas=value["schemas"],
            archived=ArchivedQueues.from_json(value["archived"]),
            files=tuple(DataFile(str(path), int(size)) for path, size in value["files"]),
            replaced=tuple((str(path), int(at)) for path, at in value["replaced"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CometError(f"{name} is damaged and cannot be read: {error}") from error
