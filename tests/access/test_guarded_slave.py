"""A slave signs what it asks its master for, and is guarded by the master's users."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from access.signing import GUARDED, USER, as_root, entry, give_rights, signer
from broker.harness import new_disk, run
from broker.replication.broker_pair import SLAVE, SYNC, pair, until
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.request_signature import Credentials

if TYPE_CHECKING:
    import pytest

    from broker.commands import Harness

REFUSED = ResponseCode.NO_PERMISSION
INNER_KEYS = Credentials("in", "in-of-many")
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


def test_a_slave_has_the_users_and_policies_of_its_master() -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start(access=INNER, **SYNC)
            root = await as_root(master)
            await give_rights(root, entry("Topic:T", "All"))
            disk = new_disk()
            slave = await brokers.start(access=INNER, disk=disk, **SLAVE)
            await until(lambda: "user" in users_of(slave))
            assert users_of(slave) == users_of(master) == {"root", "in", "user"}
            user = signer(await slave.client(), USER)
            assert (await user.call(RequestCode.GET_MAX_OFFSET, topic="T", queueId="0")).code == 0
            assert (await user.pull("Other")).code == REFUSED

            await root.call(3003, username="user")
            await until(lambda: "user" not in users_of(slave))
            refused = await user.call(RequestCode.GET_MAX_OFFSET, topic="T", queueId="0")
            assert (refused.code, refused.remark) == (REFUSED, "User:user is not found.")
            await slave.broker.stop()
            again = await brokers.start(access=INNER, disk=disk, **SLAVE)
            assert "user" not in users_of(again)

    run(scenario())


def test_users_that_a_master_does_not_show_whole_are_not_copied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with pair() as brokers:
            master = await brokers.start(access=INNER, **SYNC)
            root = await as_root(master)
            slave = await brokers.start(access=INNER, **SLAVE)
            await until(lambda: slave.broker._replication.is_following())
            normal = b'{"userType":"Normal"}'
            assert (await root.call(3002, body=normal, username="in")).code == 0
            await give_rights(root, entry("Topic:T", "All"))
            await give_rights(root, entry("Cluster:*", "All"), keys=INNER_KEYS)
            await asyncio.sleep(60)
            assert users_of(slave) == {"root", "in"}

    run(scenario())
    assert caplog.text.count("shows passwords to super users alone") == 1


def users_of(harness: Harness) -> set[str]:
    control = harness.broker._access.control
    assert control is not None
    return set(control.rules.users)
