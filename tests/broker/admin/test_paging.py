"""Long lists, returned in pages."""

from __future__ import annotations

import json

from broker.harness import run, running
from cometmq.wire.codes import RequestCode as Code


def test_topics_and_groups_are_returned_in_pages_on_request() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            table = harness.broker.state.topics.table
            seen: list[str] = []
            version = ""
            while len(seen) < len(table):
                fields = {"topicSeq": str(len(seen)), "maxTopicNum": "4", "dataVersion": version}
                answer = await client.call(Code.GET_ALL_TOPIC_CONFIG, **fields)
                assert answer.ext["totalTopicNum"] == str(len(table))
                page = json.loads(answer.body)
                version = json.dumps(page["dataVersion"])
                seen += page["topicConfigTable"]
            assert seen == sorted(table)
            await client.send("New")
            fields = {"topicSeq": "8", "maxTopicNum": "3", "dataVersion": version}
            answer = await client.call(Code.GET_ALL_TOPIC_CONFIG, **fields)
            page = json.loads(answer.body)["topicConfigTable"]
            assert sorted(page) == sorted(table)[:3], "the table changed: from its beginning"
            fields = {"groupSeq": "0", "maxGroupNum": "2"}
            answer = await client.call(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, **fields)
            assert len(json.loads(answer.body)["subscriptionGroupTable"]) == 2
            groups = harness.broker.state.groups.table
            assert answer.ext["totalGroupNum"] == str(len(groups))
            answer = await client.call(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            assert set(json.loads(answer.body)["subscriptionGroupTable"]) == set(groups)

    run(scenario())
