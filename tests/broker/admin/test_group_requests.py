"""Groups as administrators create, list, change, forbid and delete them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker.harness import leave_table, new_disk, run, running
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.wire.bodies.group import decode_group_config, decode_group_table, encode_group_config
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    import pytest


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
        leave_table(disk, "consumerOffset.json", {"offsetTable": {}})
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


def test_groups_are_created_shown_and_deleted() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            config = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            assert (await client.call(code, None, encode_group_config(config))).code == 0
            answer = await client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="CG")
            assert decode_group_config(answer.body) == config
            answer = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            assert {"CG", "TOOLS_CONSUMER"} <= set(decode_group_table(answer.body).groups)
            bad = SubscriptionGroupConfig(group_name="a b")
            answer = await client.call(code, None, encode_group_config(bad))
            assert answer.code == ResponseCode.INVALID_PARAMETER
        async with running(disk=disk) as harness:
            client = await harness.client()
            harness.broker.state.offsets.commit("CG", "T", 0, 1)
            fields = {"groupName": "CG", "cleanOffset": "true"}
            assert (await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **fields)).code == 0
            assert "CG" not in harness.broker.state.groups.table
            assert harness.broker.state.offsets.snapshot() == {}

    run(scenario())


def test_a_group_is_forbidden_a_topic_until_it_is_allowed_again() -> None:
    fields = {"group": "CG", "topic": "T"}

    async def scenario() -> None:
        disk = new_disk()
        async with running(disk=disk) as harness:
            client = await harness.client()
            await client.send("T")
            await client.beat("CG", "T")
            answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
            assert json.loads(answer.body) == {**fields, "readable": True}
            answer = await client.call(
                Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields, readable="false"
            )
            assert json.loads(answer.body)["readable"] is False
            answer = await client.pull("T", sys_flag=0)
            assert answer.code == ResponseCode.NO_PERMISSION
        async with running(disk=disk) as harness:
            client = await harness.client()
            await client.beat("CG", "T")
            assert (await client.pull("T", sys_flag=0)).code == ResponseCode.NO_PERMISSION
            await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields, readable="true")
            assert (await client.pull("T", sys_flag=0)).code == 0

    run(scenario())


def test_what_groups_may_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.broker.groups.consumer_groups.FORBIDDEN_MAX", 2)

    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for topic, code in (("A", 0), ("B", 0), ("C", 1)):
                fields = {"group": "CG", "topic": topic, "readable": "false"}
                answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
                assert answer.code == code
            fields = {"group": "CG", "topic": "A", "readable": "true"}
            answer = await client.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, **fields)
            assert answer.code == 0

    run(scenario())


def test_a_broker_has_a_bounded_number_of_groups_however_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, table = await harness.client(), harness.broker.state.groups.table
            await client.send("T")
            limit = "cometmq.broker.groups.consumer_groups.GROUPS_MAX"
            monkeypatch.setattr(limit, len(table) + 1)
            code, one = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "A"
            for retries in (1, 2):
                config = SubscriptionGroupConfig(group_name=one, retry_max_times=retries)
                assert (await client.call(code, None, encode_group_config(config))).code == 0
            config = SubscriptionGroupConfig(group_name="B")
            refused = await client.call(code, None, encode_group_config(config))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "groups, the limit is" in str(refused.remark)
            refused = await client.pull("T", consumer_group="B")
            assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert "groups, the limit is" in str(refused.remark)
            assert "B" not in table

    run(scenario())


def test_a_group_that_may_read_all_again_is_forgotten_by_what_is_forbidden() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client, groups = await harness.client(), harness.broker.state.groups
            code = Code.UPDATE_AND_GET_GROUP_FORBIDDEN
            for readable, kept in (("false", ["CG"]), ("true", [])):
                fields = {"group": "CG", "topic": "T", "readable": readable}
                assert (await client.call(code, **fields)).code == 0
                assert list(groups.forbidden) == kept
            for fields in ({"group": "g" * 256, "topic": "T"}, {"group": "CG", "topic": "t" * 128}):
                refused = await client.call(code, **fields, readable="false")
                assert refused.code == ResponseCode.INVALID_PARAMETER
                assert "the limit is" in str(refused.remark)

    run(scenario())
