"""RocketMQ's signature of a request: the access key of its sender, and a proof.

Signed are the values of all fields in the order of their names, then the body.
Java: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.wire.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"


class Credentials(NamedTuple):
    """The keys of a client; temporary keys (STS) come with a token."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        """Return it without its secrets."""
        return f"Credentials({self.access_key!r}, ...)"


def sign(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """The signature of a request with these fields and this body."""
    signed = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode()
    return b64encode(hmac.digest(secret_key.encode(), signed + body, hashlib.sha1)).decode()


def add_signature(command: Command, credentials: Credentials) -> None:
    """Write the access key and the signature into the fields of a request."""
    fields = command.ext
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = sign(fields, command.body, credentials.secret_key)
