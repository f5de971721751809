"""AsyncAdmin: what operators and jobs ask name servers and brokers for, and have them change.

Owns its start and stop; the parts by noun are in the files beside this one.
Java: DefaultMQAdminExt
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from cometmq.client.admin.parking_admin import AsyncParkingAdmin
from cometmq.client.session.client_options import (
    ClientOptions,
    check_seconds,
    name_servers,
    tls_context,
)
from cometmq.client.session.client_session import (
    ClientSession,
    require_not_started,
)
from cometmq.runtime.loop_clock import clock_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext


class AsyncAdmin(AsyncParkingAdmin):
    """Looks up and changes topics and offsets at name servers and brokers.

    `namesrv` is "host:port", several joined by ";" or as a list; without it the environment's
    NAMESRV_ADDR is used. `access_key`, `secret_key`, `security_token` and `tls` are those of a
    producer. Use it as a context manager, or call start and stop. All methods raise RemotingError
    when a server does not answer and BrokerError when it refuses.
    """

    def __init__(
        self,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout_s: float = 6.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        tls: SSLContext | bool | None = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        self._options = ClientOptions(
            namesrv=name_servers(namesrv, os.environ),
            call_timeout_s=timeout_s,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            tls=tls_context(tls),
        )

    async def start(self) -> None:
        """Get ready. The first request that needs a connection opens it.

        Raises ClientError when it is started already.
        """
        require_not_started(self._session, "admin")
        self._session = ClientSession(self._options, clock_of_running_loop())

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        await self.stop()
