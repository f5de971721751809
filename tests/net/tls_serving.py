"""Settings of a server with TLS, and connections to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cometmq.settings.tls import PERMISSIVE, TlsSettings
from net.certificates import certificates
from net.serving import Raw

if TYPE_CHECKING:
    import ssl

    from net.serving import Served


def settings(mode: str = PERMISSIVE, **more: Any) -> TlsSettings:
    cert, key = certificates().server
    return TlsSettings(
        server_mode=mode, server_cert_path=str(cert), server_key_path=str(key), **more
    )


async def connect(served: Served, tls: ssl.SSLContext | None = None) -> Raw:
    tls = tls or certificates().ours.client()
    raw = Raw(*await asyncio.open_connection("127.0.0.1", served.port, ssl=tls))
    served.raws.append(raw)
    return raw
