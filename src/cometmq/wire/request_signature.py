"""RocketMQ's signature of a request: the access key of its sender, and a proof.

Signed are the values of all fields in the order of their names, then the body.
Java: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Callable
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


SignatureCheck = Callable[[bytes, bytes], bool]
"""Says of what a signature covers, and the signature, whether they fit."""


def sign(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """The signature of a request with these fields and this body."""
    signed = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode()
    return signature_of(secret_key.encode(), signed + body).decode()


def signature_of(secret_key: bytes, signed: bytes) -> bytes:
    """The signature of what it covers: the values of the fields, then the body."""
    return b2a_base64(hmac.digest(secret_key, signed, "sha1"), newline=False)


def is_signature(secret_key: bytes, signed: bytes, signature: bytes) -> bool:
    """Whether that is the signature; takes as long whichever of its bytes is wrong."""
    return hmac.compare_digest(signature_of(secret_key, signed), signature)


def add_signature(command: Command, credentials: Credentials) -> None:
    """Write the access key and the signature into the fields of a request."""
    fields = command.ext
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = sign(fields, command.body, credentials.secret_key)
