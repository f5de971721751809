"""A look at a cluster goes on where a server's answers cannot be read, and says whose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from client.scripted_broker import BROKER, ScriptedBroker
from cometmq.client.admin.cluster_survey import ClusterSurvey
from cometmq.model.route import BrokerData, ClusterInfo
from cometmq.rules.diagnosis.cluster_diagnosis import diagnose
from cometmq.rules.diagnosis.finding import Severity
from cometmq.wire.bodies.name_lists import encode_kv_table
from cometmq.wire.bodies.route import encode_cluster_info
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response

if TYPE_CHECKING:
    from cometmq.rules.diagnosis.finding import ClusterFinding

ASKED = [
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
]


def faults(server: ScriptedBroker) -> list[ClusterFinding]:
    survey = ClusterSurvey([server.addr], timeout_s=5.0, now_ms=lambda: 0)
    found = diagnose(asyncio.run(survey.take()))
    return [one for one in found if one.severity is Severity.FAULT]


@pytest.mark.parametrize("code", ASKED, ids=lambda code: code.name)
def test_an_answer_that_cannot_be_read_is_a_fault_of_its_server(
    scripted_broker: ScriptedBroker, code: RequestCode
) -> None:
    data = BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: scripted_broker.addr})
    bodies = {
        RequestCode.GET_BROKER_CLUSTER_INFO: encode_cluster_info(
            ClusterInfo(broker_addr_table={BROKER: data})
        ),
        RequestCode.GET_BROKER_RUNTIME_INFO: encode_kv_table({"brokerVersionDesc": "V5"}),
        code: b"{no JSON",
    }

    def answer(command: Command) -> Command:
        body = bodies.get(RequestCode(command.code))
        code = ResponseCode.SYSTEM_ERROR if body is None else ResponseCode.SUCCESS
        return response(command.opaque, code, body=body or b"")

    asked = [*ASKED, RequestCode.GET_BROKER_CONFIG]
    scripted_broker.answers.update(dict.fromkeys(asked, answer))
    assert any(
        scripted_broker.addr in one.subject and f"its answer to {code.name} cannot" in one.what
        for one in faults(scripted_broker)
    )
