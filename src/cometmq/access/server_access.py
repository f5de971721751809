"""The access control of one server, as its settings ask for it: rules, their files, its requests.

Puts the parts of this package together. A server that is asked to guard itself and knows no user
does not start.
Java: AuthenticationFactory, AuthorizationFactory, AuthConfig.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cometmq.access.access_control import AccessControl
from cometmq.access.access_directory import AccessDirectory
from cometmq.access.access_file import FILE_NAME, AccessFile
from cometmq.access.access_requests import AccessRequests
from cometmq.access.plain_acl_file import FILE_NAME as ACCOUNTS
from cometmq.access.plain_acl_file import PlainAclFile
from cometmq.errors import SettingsError
from cometmq.model.access import User
from cometmq.rules.access.access_rules import AccessRules
from cometmq.runtime.system_clock_and_files import expand_user_path
from cometmq.wire.bodies.access import IS_OFF
from cometmq.wire.request_signature import Credentials, add_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.net.admission import Admission
    from cometmq.net.endpoint import Endpoint
    from cometmq.runtime.background import BackgroundTasks
    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.settings.access import AccessSettings, SecretPair
    from cometmq.wire.command import Command

WATCH_S = 1.0
"""Time between looks whether plain_acl.yml has changed, seconds."""

_IN_FILE = "the accounts are in plainAclFile (aclEnable=true): change that file"
_OFF = f"{IS_OFF}; set authenticationEnabled=true and start again"


def only_admission(given: Admission | None, control: AccessControl | None) -> Admission | None:
    """The one hook of a server; raises SettingsError where there would be two."""
    if given is not None and control is not None:
        raise SettingsError(
            "authenticationEnabled or aclEnable is true, and an admission hook is given too; a "
            "server has one hook: leave one of the two out"
        )
    return given or control


class ServerAccess:
    """Belongs to its server's loop; `control` is None where requests are not looked at."""

    def __init__(
        self, settings: AccessSettings, directory: Path, files: Files, *, cluster: str = ""
    ) -> None:
        """Read users and policies; writes nothing. Raises SettingsError.

        `directory` is where access.json is unless `authConfigPath` says otherwise; `cluster` is the
        broker's.
        """
        self._settings = settings
        if settings.auth_config_path:
            directory = expand_user_path("authConfigPath", settings.auth_config_path)
        self.control: AccessControl | None = None
        self.directory: AccessDirectory | None = None
        """The users and policies that requests may change; None where there are none."""
        self._file = AccessFile(directory / FILE_NAME, files)
        self._stored = AccessRules()
        self._accounts: PlainAclFile | None = None
        if settings.acl_enable:
            path = settings.plain_acl_file
            chosen = expand_user_path("plainAclFile", path) if path else directory / ACCOUNTS
            self._accounts = PlainAclFile(chosen, files)
            self._stored = self._accounts.load()
            self.control = AccessControl(self._stored, cluster)
        if settings.authentication_enabled:
            self._stored = self._file.load()
            self.control = AccessControl(
                self._with_initial_users(), cluster, authorizes=settings.authorization_enabled
            )
            self.directory = AccessDirectory(self.control.rules, self._file, self.control.set_rules)

    def keep_initial_users(self) -> None:
        """Write the users that the settings name, if they are new. Raises SettingsError."""
        if self.control is not None and self.control.rules != self._stored:
            try:
                self._file.save(self.control.rules)
            except OSError as error:
                raise SettingsError(f"{self._file.path} cannot be written: {error}") from error

    def endpoints(self) -> list[Endpoint]:
        """The requests about users and policies."""
        control = self.control
        if control is None:
            return AccessRequests(None, lambda _request: False, _OFF).endpoints()
        if self._accounts is not None:
            return AccessRequests(None, control.is_of_super_user, _IN_FILE).endpoints()
        return AccessRequests(self.directory, control.is_of_super_user).endpoints()

    def watch(self, background: BackgroundTasks) -> None:
        """Have the file of ACL 1.0 read whenever it changes, where it is used."""
        if self._accounts is not None and self.control is not None:
            reload = partial(self._accounts.reload, self.control.set_rules)
            background.every(WATCH_S, reload, name="accounts of plain_acl.yml")

    def preparer(self) -> Callable[[Command], None] | None:
        """What signs each request to other servers; None where no keys are given."""
        found = self._settings.inner_credentials
        if found is None:
            return None
        credentials = Credentials(found.name, found.secret)
        return lambda command: add_signature(command, credentials)

    def _with_initial_users(self) -> AccessRules:
        users = dict(self._stored.users)
        for pair in self._named_users():
            users.setdefault(pair.name, User(pair.name, pair.secret, is_super=True))
        rules = replace(self._stored, users=users)
        if not rules.has_super_user:
            raise SettingsError(
                f"authenticationEnabled is true, and {self._file.path} knows no super user that is "
                'enabled: set initAuthenticationUser={"username":"...","password":"..."} for the '
                "first one"
            )
        return rules

    def _named_users(self) -> Iterator[SecretPair]:
        for pair in (self._settings.first_user, self._settings.inner_credentials):
            if pair is not None:
                yield pair
