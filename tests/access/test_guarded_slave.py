"""A slave signs what it asks its master for, and is guarded by users of its own."""

from __future__ import annotations

from dataclasses import replace

from access.signing import GUARDED, as_root, signer
from broker.harness import run
from broker.replication.broker_pair import SLAVE, SYNC, pair, until
from cometmq.wire.codes import RequestCode, ResponseCode

INNER = replace(
    GUARDED,
    inner_client_authentication_credentials='{"accessKey":"in","secretKey":"in-of-many"}',
)


def test_a_slave_takes_topics_and_offsets_over_from_a_guarded_master() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start(access=INNER, **SYNC)
            slave = await brokers.start(access=INNER, **SLAVE)
            root = await as_root(master)
            assert (await root.create_topic("T")).code == 0
            await root.pull("T")
            assert (await root.commit(0)).code == 0
            await until(lambda: "T" in slave.broker.state.topics.table)
            await until(lambda: slave.broker.state.offsets.committed("CG", "T", 0) == 0)
            nobody = signer(await slave.client(), None)
            refused = await nobody.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert refused.code == ResponseCode.NO_PERMISSION

    run(scenario())
