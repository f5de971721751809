"""plain_acl.yml: the accounts of ACL 1.0, read at the start and again whenever the file changes.

A file that cannot be read while the server runs changes nothing; the log says so once.
Java: PlainPermissionManager, AclFileWatchService of the former module acl.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError
from cometmq.rules.access.plain_accounts import rules_of_accounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.rules.access.access_rules import AccessRules
    from cometmq.runtime.clock_and_file_protocols import Files

log = logging.getLogger(__name__)

FILE_NAME = "plain_acl.yml"
BYTES_MAX = 1 << 20
"""Largest file that is read."""


class PlainAclFile:
    """The file on disk."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._read: bytes | None = None
        """What was looked at last, good or bad."""
        self._problem = ""
        """What the log has said last."""

    def load(self) -> AccessRules:
        """What the file says now. Raises SettingsError."""
        return self._rules_of(self._bytes())

    async def reload(self, set_rules: Callable[[AccessRules], None]) -> None:
        """Put what the file says in force, where it has changed; logs why it cannot."""
        try:
            data = await asyncio.to_thread(self._bytes)
            if data == self._read:
                self._problem = ""
                return
            rules = await asyncio.to_thread(self._rules_of, data)
        except SettingsError as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.warning("%s; the accounts before are still in force", problem)
            return
        self._problem = ""
        set_rules(rules)
        log.info("%s: %d accounts are in force", self._path, len(rules.users))

    def _bytes(self) -> bytes:
        try:
            data = self._files.read(self._path)
        except OSError as problem:
            raise self._bad(problem.strerror or str(problem)) from None
        if data is None:
            raise self._bad("there is no such file")
        return data

    def _rules_of(self, data: bytes) -> AccessRules:
        self._read = data
        if len(data) > BYTES_MAX:
            raise self._bad(f"it has {len(data)} bytes, the limit is {BYTES_MAX}")
        try:
            yaml: Any = importlib.import_module("yaml")
        except ImportError:
            raise SettingsError(
                "aclEnable is true, and PyYAML, which reads its file, is missing: "
                "pip install 'cometmq[acl]'"
            ) from None
        try:
            return rules_of_accounts(yaml.load(data, yaml.BaseLoader))
        except RecursionError:
            raise self._bad("it is nested too deeply") from None
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            line = getattr(getattr(problem, "problem_mark", None), "line", None)
            where = "" if line is None else f" at line {line + 1}"
            raise self._bad(f"it is no YAML{where}") from None
        except SettingsError as problem:
            raise self._bad(str(problem)) from None

    def _bad(self, what: str) -> SettingsError:
        return SettingsError(f"plainAclFile {self._path}: {what}")
