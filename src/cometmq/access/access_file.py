"""access.json: users with their passwords, and their policies; for its owner's eyes alone.

Saving writes `.tmp`, makes it durable, and renames it, so that a reader finds the former content or
the new one, whole. Java: LocalAuthenticationMetadataProvider, which keeps them in RocksDB.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cometmq.errors import ProtocolError, SettingsError
from cometmq.rules.access.access_rules import AccessRules
from cometmq.wire import fastjson
from cometmq.wire.bodies.access import acl_object, acl_of, user_object, user_of
from cometmq.wire.bodies.json_fields import object_of

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

FILE_NAME = "access.json"


class AccessFile:
    """The file on disk. `save` blocks for two flushes."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def load(self) -> AccessRules:
        """What was saved last; nobody where nothing ever was. Raises SettingsError."""
        try:
            raw = self._files.read(self.path)
            return _rules_of(raw) if raw is not None else AccessRules()
        except (OSError, ProtocolError) as problem:
            raise SettingsError(
                f"{self.path} cannot be read ({problem}); bring it back, or move it away to begin "
                "with the user of initAuthenticationUser alone"
            ) from None

    def save(self, rules: AccessRules) -> None:
        """Make these the file's content, durably. OSError: the former content is kept."""
        fresh = self.path.with_name(self.path.name + ".tmp")
        self._files.make_dir(self.path.parent)
        self._files.write_private(fresh, _encode(rules))
        self._files.rename(fresh, self.path)
        self._files.sync_dir(self.path.parent)


def _encode(rules: AccessRules) -> bytes:
    found = {
        "users": [user_object(user) for user in rules.users.values()],
        "acls": [acl_object(acl) for acl in rules.acls.values()],
    }
    return json.dumps(found, indent="\t", ensure_ascii=False).encode()


def _rules_of(raw: bytes) -> AccessRules:
    try:
        found = object_of(fastjson.loads(raw), "the file")
    except ProtocolError:
        raise ProtocolError("it is no JSON object") from None
    users = [user_of(one) for one in _objects(found, "users")]
    acls = [acl_of(one) for one in _objects(found, "acls")]
    if any(not user.username or not user.password for user in users):
        raise ProtocolError("a user in it has no name or no password")
    return AccessRules({user.username: user for user in users}, {acl.username: acl for acl in acls})


def _objects(found: Any, name: str) -> list[Any]:
    listed = found.get(name)
    if not isinstance(listed, list):
        raise ProtocolError(f"{name} is no list in it")
    return [object_of(one, f"one of {name}") for one in listed]
