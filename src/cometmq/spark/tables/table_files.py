"""The files of a table, where Spark writes them: a local disk, or any file system of Hadoop.

Owns the one atomic step: a manifest appears whole or not at all, and only if there is none of that
name. A local disk does it by a hard link, and what was written is synced first. Hadoop does it by a
rename, with Spark's own settings; HDFS makes that atomic, object stores check and then write, so
that there one job at a time is the user's care. Spark Connect has no way to Hadoop's files: it
takes local paths, of a disk that the server has as well.
Paths are relative to the table's directory.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_SUFFIX = ".parquet"
_GLOB = set("{}[]*?\\")


class TableFiles(Protocol):
    """What a table does with its files."""

    uri: str
    """The directory, as Spark takes it."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it doesn't exist."""

    def read(self, path: str) -> bytes:
        """The content of a file."""

    def create(self, path: str, data: bytes) -> bool:
        """Make a file with this content, atomically; False, and no change, when it exists."""

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        """Path and size of every Parquet file in a folder and below."""

    def sync(self, paths: Iterable[str]) -> None:
        """Have files on disk, where the file system does not see to it."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it, if it is there."""


def table_files(spark: SparkSession, directory: str | Path) -> TableFiles:
    """The files of the table in a directory: a path, or a URI that Spark takes.

    Raises SettingsError for one that can't be used.
    """
    text = str(directory)
    if not text or _GLOB & set(text):
        raise SettingsError(
            f"the directory {text!r} cannot hold a table: Spark takes {' '.join(sorted(_GLOB))} "
            "for patterns"
        )
    scheme, separator, rest = text.partition(":")
    is_local = not separator or len(scheme) == 1 or "/" in scheme or scheme == "file"
    if hasattr(spark, "_jsparkSession"):
        found = HadoopTableFiles(spark, text)
        if not found.uri.startswith("file:"):
            return found
        return LocalTableFiles(found.uri.removeprefix("file:"))
    if not is_local:
        raise SettingsError(
            f"a session of Spark Connect cannot keep a table in {text}: run the job where Spark's "
            "driver runs, or give a path on a disk that client and server share"
        )
    return LocalTableFiles(rest if scheme == "file" else text)


class LocalTableFiles:
    """A directory on a local disk."""

    def __init__(self, directory: str | Path) -> None:
        """`directory` need not exist yet."""
        plain = str(directory)
        if plain.startswith("///"):
            plain = plain[2:]
        self._root = Path(plain).absolute()
        self.uri = f"file://{self._root}"

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it doesn't exist."""
        place = self._root / folder
        return sorted(each.name for each in place.iterdir()) if place.is_dir() else []

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return (self._root / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        """Make a file atomically; False when it exists."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(target.parent)
        return True

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        """Path and size of every Parquet file in a folder and below."""
        return sorted(
            (each.relative_to(self._root).as_posix(), each.stat().st_size)
            for each in (self._root / folder).rglob(f"*{_SUFFIX}")
            if not each.name.startswith(("_", "."))
        )

    def sync(self, paths: Iterable[str]) -> None:
        """Have files and their folders on disk."""
        folders = set()
        for path in paths:
            file = self._root / path
            _sync(file)
            folders |= {each for each in file.parents if each.is_relative_to(self._root)}
        for folder in sorted(folders, reverse=True):
            _sync(folder)

    def delete(self, path: str) -> None:
        """Delete a file with its checksum file, or a folder."""
        place = self._root / path
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            return
        for each in (place, place.with_name(f".{place.name}.crc")):
            each.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            place.parent.rmdir()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HadoopTableFiles:
    """A directory of a file system that Hadoop knows, reached through Spark's JVM."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        """Uses the Hadoop settings of the session."""
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Spark gives no other way to its file systems
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - likewise
        self._hadoop = self._jvm.org.apache.hadoop.fs
        session: Any = spark._jsparkSession  # noqa: SLF001 - likewise
        self._conf = session.sessionState().newHadoopConf()
        root = self._hadoop.Path(directory)
        self._fs = root.getFileSystem(self._conf)
        self._root = root.makeQualified(self._fs.getUri(), self._fs.getWorkingDirectory())
        self.uri: str = self._root.toString()

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none when it doesn't exist."""
        place = self._path(folder)
        if not self._fs.exists(place):
            return []
        return sorted(each.getPath().getName() for each in self._fs.listStatus(place))

    def read(self, path: str) -> bytes:
        """The content of a file."""
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, data: bytes) -> bool:
        """Make a file by a rename that replaces nothing; False when it exists."""
        target = self._path(path)
        draft = self._path(f"{path.rpartition('/')[0]}/.{uuid4().hex}")
        stream = self._fs.create(draft, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        try:
            return self._renamed(draft, target)
        finally:
            self._fs.delete(draft, False)

    def data_files(self, folder: str) -> list[tuple[str, int]]:
        """Path and size of every Parquet file in a folder and below."""
        place = self._path(folder)
        if not self._fs.exists(place):
            return []
        found = []
        each = self._fs.listFiles(place, True)
        prefix = f"{self.uri.rstrip('/')}/"
        while each.hasNext():
            status = each.next()
            path = status.getPath()
            if path.getName().endswith(_SUFFIX) and not path.getName().startswith(("_", ".")):
                found.append((path.toString().removeprefix(prefix), int(status.getLen())))
        return sorted(found)

    def sync(self, paths: Iterable[str]) -> None:
        """Nothing: a file system of Hadoop keeps what was closed."""

    def delete(self, path: str) -> None:
        """Delete a file or a folder."""
        self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self._root, path)

    def _renamed(self, draft: Any, target: Any) -> bool:
        from py4j.protocol import Py4JJavaError

        if self._fs.exists(target):
            return False
        options = self._gateway.new_array(getattr(self._hadoop, "Options$Rename"), 0)
        try:
            context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), self._conf)
            context.rename(draft, target, options)
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getSimpleName()
            if kind == "FileAlreadyExistsException":
                return False
            if kind != "UnsupportedFileSystemException":
                raise
            return bool(self._fs.rename(draft, target))
        return True
