"""Groups on demand where RocketMQ's answers are not what one would guess."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from broker.rig import run, running
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.wire.bodies.group import decode_group_config, encode_group_config
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path


def test_asking_for_a_group_makes_it_where_first_use_does(tmp_path: Path) -> None:
    async def story(*, makes: bool) -> None:
        root = tmp_path / str(makes)
        async with running(root, auto_create_subscription_group=makes) as rig:
            client = await rig.client()
            answer = await client.call(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="New")
            if makes:
                assert decode_group_config(answer.body).group_name == "New"
            else:
                assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert ("New" in rig.broker.state.groups.table) is makes

    run(story(makes=True))
    run(story(makes=False))


def test_attributes_of_a_group_are_refused_and_stored_ones_kept(tmp_path: Path) -> None:
    stored = {"groupName": "CG", "attributes": {"priority.factor": "3"}}
    file = tmp_path / "config" / "subscriptionGroup.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"subscriptionGroupTable": {"CG": stored}}))

    async def story() -> None:
        async with running(tmp_path) as rig:
            client, code = await rig.client(), Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            config = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
            assert (await client.call(code, None, encode_group_config(config))).code == 0
            kept = rig.broker.state.groups.table["CG"]
            assert (kept.retry_max_times, kept.attributes) == (3, {"priority.factor": "3"})
            body = json.dumps({"groupName": "New", "attributes": {"+no.such": "1"}}).encode()
            answer = await client.call(code, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "+no.such" in (answer.remark or "")
            assert "New" not in rig.broker.state.groups.table

    run(story())


def test_offsets_of_topics_that_are_gone_are_dropped_at_the_start(tmp_path: Path) -> None:
    offsets = {"Gone@CG": {"0": 7}, "T@CG": {"0": 1}, "%LMQ%x@CG": {"0": 2}}

    async def story() -> None:
        async with running(tmp_path) as rig:
            await (await rig.client()).send("T")
        (tmp_path / "config" / "consumerOffset.json").write_text(
            json.dumps({"offsetTable": offsets})
        )
        async with running(tmp_path) as rig:
            assert set(rig.broker.state.offsets.snapshot()) == {"T@CG", "%LMQ%x@CG"}

    run(story())
