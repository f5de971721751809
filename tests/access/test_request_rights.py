"""Each request that a server answers has its right in the one table, and none is there in vain."""

from __future__ import annotations

from broker.harness import new_broker, run
from cometmq.access.request_rights import RIGHTS, RequestRight
from cometmq.namesrv.app import NameServer
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.codes import RequestCode


def answered_codes() -> set[int]:
    """All codes of both servers."""
    codes: set[int] = set()

    async def scenario() -> None:
        broker = new_broker()
        name_server = NameServer.open(NamesrvSettings(listen_port=0, kv_config_path=""))
        codes.update(broker.codes, name_server.codes)
        broker.store.abandon()

    run(scenario())
    return codes


def test_each_endpoint_has_its_right() -> None:
    missing = answered_codes() - RIGHTS.keys()
    assert {RequestCode(code).name for code in missing} == set()


def test_the_table_has_no_code_that_nobody_answers() -> None:
    spare = RIGHTS.keys() - answered_codes()
    assert {RequestCode(code).name for code in spare} == set()


def test_each_right_asks_for_something() -> None:
    for code, right in RIGHTS.items():
        assert right != RequestRight(may_name_nothing=right.may_name_nothing), RequestCode(code)
        only = RequestRight(cluster=right.cluster, cluster_field=right.cluster_field)
        assert not right.cluster or right == only, RequestCode(code)
