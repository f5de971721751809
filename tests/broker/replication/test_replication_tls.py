"""A slave copies its master with TLS, and nobody without it reads the log; on real sockets."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from broker.harness import SMALL_STORE
from broker.sockets import run
from cometmq import AsyncProducer, Message
from cometmq.broker.app import Broker
from cometmq.namesrv.app import NameServer
from cometmq.net.address import split_address
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.tls import ENFORCING, PERMISSIVE, TlsSettings
from cometmq.wire.replication import encode_report
from net.certificates import certificates

if TYPE_CHECKING:
    from pathlib import Path

SYNC: dict[str, Any] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}
SLAVE: dict[str, Any] = {"broker_role": "SLAVE", "broker_id": 1}


def tls(mode: str, enable: str = "", *, asks: bool = False) -> TlsSettings:
    """Settings of a broker; one that `asks` speaks to those alone whom our authority knows."""
    found = certificates()
    asked: dict[str, Any] = {
        "server_need_client_auth": "require",
        "server_auth_client": True,
        "server_trust_cert_path": str(found.ours.cert),
        "client_cert_path": str(found.client[0]),
        "client_key_path": str(found.client[1]),
    }
    return TlsSettings(
        server_mode=mode,
        server_cert_path=str(found.server[0]),
        server_key_path=str(found.server[1]),
        client_trust_cert_path=str(found.ours.cert),
        enable=enable,
        **(asked if asks else {}),
    )


async def answer_to_a_stranger(addr: str, context: ssl.SSLContext | None = None) -> bytes:
    """What the replication port says to who reports in without TLS, or by this context."""
    reader, writer = await asyncio.open_connection(*split_address(addr), ssl=context)
    writer.write(encode_report(0))
    found = b""
    with suppress(ConnectionError, TimeoutError, ssl.SSLError):
        async with asyncio.timeout(10):
            found = await reader.read(1)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return found


@pytest.mark.parametrize(
    ("mode", "slave_uses_tls", "asks"),
    [
        (ENFORCING, True, False),
        (ENFORCING, True, True),
        (PERMISSIVE, True, False),
        (PERMISSIVE, False, False),
    ],
)
def test_a_sync_master_has_its_copy_by_tls(
    tmp_path: Path, mode: str, slave_uses_tls: bool, asks: bool
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            names = NameServer.open(
                NamesrvSettings(listen_port=0, kv_config_path=""), tls=tls(PERMISSIVE)
            )
            await names.start()
            stack.push_async_callback(names.stop)
            brokers = []
            for name, settings in (("master", SYNC), ("slave", SLAVE)):
                uses_tls = "true" if name == "master" or slave_uses_tls else "false"
                broker = Broker.open(
                    BrokerSettings(
                        store_path_root_dir=str(tmp_path / name), broker_name="b0", listen_port=0,
                        namesrv_addr=names.address, **settings,
                    ),
                    SMALL_STORE,
                    tls=tls(mode, uses_tls, asks=asks),
                )  # fmt: skip
                await broker.start()
                stack.push_async_callback(broker.stop)
                brokers.append(broker)
            found = certificates()
            context = found.ours.client(*(found.client if asks else ()))
            async with AsyncProducer("P", namesrv=names.address, tls=context) as producer:
                for number in range(5):
                    sent = await producer.send(Message("T", b"%d" % number), timeout_s=30.0)
                    assert sent.status.name == "SEND_OK"
            master, slave = brokers
            assert slave.store.max_phy_offset == master.store.max_phy_offset > 0
            ha = f"127.0.0.1:{master._replication.port}"  # type: ignore[union-attr]
            assert bool(await answer_to_a_stranger(ha)) == (mode == PERMISSIVE)
            if mode == ENFORCING:
                assert bool(await answer_to_a_stranger(ha, found.ours.client())) != asks

    run(scenario())
