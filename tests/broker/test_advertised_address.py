"""Where a broker is reached: as clients see it, and as records carry it."""

from __future__ import annotations

import pytest

from cometmq.broker.advertised_address import advertised_host, packed_address
from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings


def test_clients_are_given_the_host_that_was_set_for_them_else_the_one_listened_on() -> None:
    assert advertised_host(BrokerSettings(bind_address="10.0.0.1")) == "10.0.0.1"
    assert advertised_host(BrokerSettings(bind_address="10.0.0.1", broker_ip1="b.example")) == (
        "b.example"
    )


@pytest.mark.parametrize(
    ("host", "port", "packed"),
    [
        ("127.0.0.1", 10911, "7f000001 00002a9f"),
        ("::1", 1, "00000000000000000000000000000001 00000001"),
        ("[::1]", 1, "00000000000000000000000000000001 00000001"),
    ],
)
def test_records_carry_the_address_and_the_port_as_four_bytes(
    host: str, port: int, packed: str
) -> None:
    assert packed_address(host, port) == bytes.fromhex(packed)


def test_a_name_is_looked_up_and_one_that_nobody_knows_is_a_wrong_setting() -> None:
    assert packed_address("localhost", 7)[-4:] == bytes((0, 0, 0, 7))
    with pytest.raises(SettingsError, match=r"brokerIP1 'no host' is no address"):
        packed_address("no host", 7)
