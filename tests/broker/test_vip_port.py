"""Clients with a VIP channel come two ports below the broker's own."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from broker.sockets import two_ports
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import ServerProcess
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path


def broker(folder: Path, port: int) -> ServerProcess:
    ports = [f"--broker-port={port}", "--namesrv-port=0"]
    return ServerProcess(["standalone", *ports, f"--store={folder}"])


def test_the_broker_answers_two_ports_below_its_own(tmp_path: Path) -> None:
    below, port = two_ports()
    process = broker(tmp_path, port)
    try:
        for each in (port, below):
            with BlockingChannel(f"127.0.0.1:{each}", 5.0) as channel:
                assert channel.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
    finally:
        process.stop()
    for each in (port, below):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", each), 5)


def test_a_broker_does_without_where_that_port_is_taken(tmp_path: Path) -> None:
    below, port = two_ports()
    with socket.create_server(("127.0.0.1", below)):
        process = broker(tmp_path, port)
        try:
            with BlockingChannel(f"127.0.0.1:{port}", 5.0) as channel:
                assert channel.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
            assert f"VIP channel are not served: 127.0.0.1:{below} is in use" in process.stderr
        finally:
            process.stop()
