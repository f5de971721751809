"""Client ids and the addresses of name servers."""

import os

import pytest

from cometmq.client.session import client_identity as identity
from cometmq.client.session.client_options import name_servers
from cometmq.errors import SettingsError


def test_ids_differ_between_clients_and_name_their_machine():
    ids = {identity.client_id("10.0.0.1", None) for _ in range(100)}
    assert len(ids) == 100
    assert all(one.startswith(f"10.0.0.1@{os.getpid()}#") for one in ids)
    assert identity.client_id("10.0.0.1", "named") == "10.0.0.1@named"
    assert identity.local_ip(("127.0.0.1", 9876)) == "127.0.0.1"


@pytest.mark.parametrize(
    ("given_as", "found"),
    [
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; b:2; ", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        (None, ("env:9",)),
    ],
)
def test_name_servers_are_read_from_arguments_or_the_environment(given_as, found):
    assert name_servers(given_as, {"NAMESRV_ADDR": "env:9"}) == found
    with pytest.raises(SettingsError):
        name_servers("", {})
