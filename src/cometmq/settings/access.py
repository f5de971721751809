"""Settings of access control, which broker and name server share.

Java: AuthConfig, and aclEnable of BrokerConfig.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from cometmq.settings.keys import BadValueError, setting


class SecretPair(NamedTuple):
    """A user's name and password, or the two keys of a client."""

    name: str
    secret: str

    def __repr__(self) -> str:
        """Return it without the secret."""
        return f"SecretPair({self.name!r}, ...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Who may ask for what."""

    authentication_enabled: bool = setting(
        default=False, note="requests must be signed by a user (ACL 2.0)"
    )
    authorization_enabled: bool = setting(
        default=False, note="users other than super users need policies (ACL 2.0)"
    )
    init_authentication_user: str = setting(
        "", secret=True, note='super user, made when missing: {"username":"...","password":"..."}'
    )
    inner_client_authentication_credentials: str = setting(
        "",
        secret=True,
        note="keys with which a broker signs what it asks name servers, and a super user, made "
        'when missing: {"accessKey":"...","secretKey":"..."}',
    )
    auth_config_path: str = setting(
        "",
        note="directory of access.json, with users and policies; empty: config in the store, or "
        "the directory of kvConfigPath",
    )
    acl_enable: bool = setting(
        default=False, note="accounts come from plainAclFile (ACL 1.0), not from access.json"
    )
    plain_acl_file: str = setting(
        "", note="accounts of ACL 1.0; empty: plain_acl.yml in authConfigPath; read when it changes"
    )

    def __post_init__(self) -> None:
        """Check every value."""
        if self.authorization_enabled and not self.authentication_enabled:
            raise BadValueError(
                "authorizationEnabled", True, "false, unless authenticationEnabled is true"
            )
        if self.acl_enable and self.authentication_enabled:
            raise BadValueError("aclEnable", True, "false where authenticationEnabled is true")
        self.first_user  # noqa: B018 - raises where it is bad
        self.inner_credentials  # noqa: B018

    @property
    def is_guarded(self) -> bool:
        """Whether requests are looked at."""
        return self.authentication_enabled or self.acl_enable

    @property
    def first_user(self) -> SecretPair | None:
        """The user of `init_authentication_user`."""
        text, key = self.init_authentication_user, "initAuthenticationUser"
        return _read(text, key, "username", "password")

    @property
    def inner_credentials(self) -> SecretPair | None:
        """The keys of `inner_client_authentication_credentials`."""
        text, key = (
            self.inner_client_authentication_credentials,
            "innerClientAuthenticationCredentials",
        )
        return _read(text, key, "accessKey", "secretKey")


def _read(text: str, key: str, name_field: str, secret_field: str) -> SecretPair | None:
    """Read a JSON object with two texts; no error shows what was read."""
    if not text.strip():
        return None
    try:
        found = json.loads(text)
        pair = SecretPair(found[name_field], found[secret_field])
    except (ValueError, KeyError, TypeError):
        pair = SecretPair("", "")
    if not all(isinstance(one, str) and one.strip() for one in pair):
        rule = f'a JSON object such as {{"{name_field}":"...","{secret_field}":"..."}}'
        raise BadValueError(key, "(not shown)", rule)
    return pair
