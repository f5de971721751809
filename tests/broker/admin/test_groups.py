"""Groups on demand where RocketMQ's answers are not what one would guess."""

from __future__ import annotations

import json

from broker.harness import leave_table, new_disk, run, running
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.wire.bodies.group import decode_group_config, encode_group_config
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode


def test_asking_for_a_group_makes_it_where_first_use_does() -> None:
    async def scenario(*, makes: bool) -> None:
        async with running(auto_create_subscription_group=makes) as harness:
            client = await harness.client()
            answer = await client.call(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="New")
            if makes:
                assert decode_group_config(answer.body).group_name == "New"
            else:
                assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert ("New" in harness.broker.state.groups.table) is makes

    run(scenario(makes=True))
    run(scenario(makes=False))


def test_attributes_of_a_group_are_refused_and_stored_ones_kept() -> None:
    stored = {"groupName": "CG", "attributes": {"priority.factor": "3"}}

    async def scenario() -> None:
        disk = new_disk()
        table = {"subscriptionGroupTable": {"CG": stored}}
        leave_table(disk, "subscriptionGroup.json", table)
        async with running(disk=disk) as harness:
            client, code = await harness.client(), Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            config = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
            assert (await client.call(code, None, encode_group_config(config))).code == 0
            kept = harness.broker.state.groups.table["CG"]
            assert (kept.retry_max_times, kept.attributes) == (3, {"priority.factor": "3"})
            body = json.dumps({"groupName": "New", "attributes": {"+no.such": "1"}}).encode()
            answer = await client.call(code, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "+no.such" in (answer.remark or "")
            assert "New" not in harness.broker.state.groups.table

    run(scenario())


def test_offsets_of_topics_that_are_gone_are_dropped_at_the_start() -> None:
    offsets = {"Gone@CG": {"0": 7}, "T@CG": {"0": 1}, "%LMQ%x@CG": {"0": 2}}

    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            await (await harness.client()).send("T")
        leave_table(disk, "consumerOffset.json", {"offsetTable": offsets})
        async with running(disk=disk) as harness:
            assert set(harness.broker.state.offsets.snapshot()) == {"T@CG", "%LMQ%x@CG"}

    run(scenario())
