"""What somebody tries who knows that the broker has learned a signed send: none of it is stored."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from access.signing import (
    ROOT,
    USER,
    Signer,
    as_root,
    as_user,
    entry,
    give_rights,
    guarded,
    slow_frames,
)
from broker.commands import make_topic, send_header
from broker.harness import run
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import request
from cometmq.wire.request_signature import SIGNATURE, Credentials, add_signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.commands import Harness
    from cometmq.wire.command import Command

REFUSED = ResponseCode.NO_PERMISSION
RETRY = "%RETRY%CG"
TOPICS = ("T", "Other", RETRY)
WARM = 8


def a_send(
    topic: str = "T", body: bytes = b"hello", keys: Credentials = USER, **more: Any
) -> Command:
    command = request(Code.SEND_MESSAGE_V2, 0, send_header(topic, **more), body)
    add_signature(command, keys)
    return command


def with_fields(command: Command, **fields: str | None) -> Command:
    """The same with other fields and the signature that it had."""
    for name, text in fields.items():
        command.ext.pop(name, None)
        if text is not None:
            command.ext[name] = text
    return command


def with_body(command: Command, body: bytes) -> Command:
    command.body = body
    return command


def flipped(signature: str) -> str:
    return ("B" if signature[0] == "A" else "A") + signature[1:]


ATTACKS: dict[str, Callable[[], Command]] = {
    "no signature": lambda: with_fields(a_send(), **{SIGNATURE: None}),
    "an empty signature": lambda: with_fields(a_send(), **{SIGNATURE: ""}),
    "a bit of it": lambda: with_fields(a_send(), **{SIGNATURE: flipped(a_send().ext[SIGNATURE])}),
    "half of it": lambda: with_fields(a_send(), **{SIGNATURE: a_send().ext[SIGNATURE][:14]}),
    "another body": lambda: with_body(a_send(), b"hullo"),
    "a longer body": lambda: with_body(a_send(), b"hello, and more"),
    "another queue": lambda: with_fields(a_send(), e="1"),
    "another time": lambda: with_fields(a_send(), g="1700000000001"),
    "another key": lambda: with_fields(a_send(), i="UNIQ_KEY\x01K2\x02WAIT\x01true"),
    "a delay": lambda: with_fields(a_send(), i="UNIQ_KEY\x01K1\x02WAIT\x01true\x02DELAY\x011"),
    "another topic": lambda: with_fields(a_send(), b="Other"),
    "another topic, signed": lambda: a_send("Other"),
    "a retry topic": lambda: with_fields(a_send(), b=RETRY),
    "a retry topic, signed": lambda: a_send(RETRY),
    "the root's name": lambda: with_fields(a_send(), AccessKey="root"),
    "a name that is not known": lambda: with_fields(a_send(), AccessKey="nobody"),
    "no name": lambda: with_fields(a_send(), AccessKey=None),
    "a guessed password": lambda: a_send(keys=USER._replace(secret_key="user-of-man")),
    "an empty password": lambda: a_send(keys=USER._replace(secret_key="")),
    "a field more": lambda: with_fields(a_send(), zone="1"),
    "a field less": lambda: with_fields(a_send(), c=None),
}


async def warm(harness: Harness) -> Signer:
    """A connection whose next sends of this kind are fast."""
    slow = slow_frames(harness)
    user = await as_user(harness)
    for _ in range(WARM):
        assert (await user.channel.call(a_send(), 10)).code == 0
    assert len(slow) == 1, "the rest was fast"
    return user


def stored(harness: Harness) -> int:
    store = harness.broker.store
    return sum(store.max_offset(topic, queue) for topic in TOPICS for queue in range(4))


def test_a_learned_send_lets_nothing_in_that_is_like_it() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            for topic in TOPICS:
                await make_topic(harness, topic)
            await give_rights(await as_root(harness), entry("Topic:T", "Pub"))
            user = await warm(harness)
            for number, (name, attack) in enumerate(ATTACKS.items()):
                for _ in range(2):
                    assert (await user.channel.call(attack(), 10)).code == REFUSED, name
                assert stored(harness) == WARM + number, name
                assert (await user.channel.call(a_send(), 10)).code == 0

    run(scenario())


async def ask(root: Signer, code: int, body: dict[str, Any] | None = None, **ext: str) -> None:
    answer = await root.call(code, body=json.dumps(body).encode() if body else b"", **ext)
    assert answer.code == 0, answer.remark


def acl(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"policies": [{"policyType": "Custom", "entries": entries}]}


MINE = {"subject": "User:user"}
DENIED = entry("Topic:T", "Pub") | {"decision": "Deny"}
ELSEWHERE = entry("Topic:T", "Pub", sourceIps=["10.0.0.0/8"])
CHANGES: dict[str, tuple[int, dict[str, Any] | None, dict[str, str]]] = {
    "the user is deleted": (3003, None, {"username": "user"}),
    "the user is disabled": (3002, {"userStatus": "disable"}, {"username": "user"}),
    "the password changes": (3002, {"password": "another-one"}, {"username": "user"}),
    "the policies are deleted": (3008, None, MINE),
    "the policy denies": (3007, acl(DENIED), MINE),
    "the policy is of other addresses": (3007, acl(ELSEWHERE), MINE),
    "the policy lets read alone": (3007, acl(entry("Topic:T", "Sub")), MINE),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_learned_is_void_once_users_or_policies_change(change: str) -> None:
    code, body, fields = CHANGES[change]

    async def scenario() -> None:
        async with guarded() as harness:
            await make_topic(harness)
            root = await as_root(harness)
            await give_rights(root, entry("Topic:T", "Pub"))
            user = await warm(harness)
            await ask(root, code, body, **fields)
            for _ in range(3):
                assert (await user.channel.call(a_send(), 10)).code == REFUSED
            assert stored(harness) == WARM
            if code == 3003:  # a new user of the old name is another one
                other = USER._replace(secret_key="made-again")
                await give_rights(root, entry("Topic:T", "Pub"), keys=other)
                assert (await user.channel.call(a_send(), 10)).code == REFUSED
                for _ in range(3):
                    assert (await user.channel.call(a_send(keys=other), 10)).code == 0
                assert (await user.channel.call(a_send(), 10)).code == REFUSED

    run(scenario())


def test_a_super_user_who_is_none_any_more_is_asked_for_rights() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            await make_topic(harness)
            root = await as_root(harness)
            await ask(root, 3001, {"password": USER[1], "userType": "Super"}, username="user")
            user = await warm(harness)
            await ask(root, 3002, {"userType": "Normal"}, username="user")
            for _ in range(3):
                assert (await user.channel.call(a_send(), 10)).code == REFUSED
            assert stored(harness) == WARM

    run(scenario())


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC",
    ],
)  # fmt: skip
def test_no_topic_of_the_broker_s_own_carries_a_message_to_where_its_sender_may_not_send(
    topic: str,
) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            await make_topic(harness, "T")
            await make_topic(harness, "Other")
            everything = entry("Topic:*", "All")
            denied = entry("Topic:Other", "All") | {"decision": "Deny"}
            await give_rights(await as_root(harness), everything, denied)
            user = await as_user(harness)
            assert (await user.channel.call(a_send("Other"), 10)).code == REFUSED
            way = {"REAL_TOPIC": "Other", "REAL_QID": "0", "DELAY": "1", "TIMER_OUT_MS": "1"}
            for queue in (0, 1):
                command = a_send(topic, queue_id=queue, properties=way)
                assert (await user.channel.call(command, 10)).code != 0
            through = await user.channel.call(a_send("T", properties=way), 10)
            assert through.code == 0
            await asyncio.sleep(30)  # it was delayed
            store = harness.broker.store
            assert (store.max_offset("T", 0), store.max_offset("Other", 0)) == (1, 0)

    run(scenario())


def test_another_user_on_the_same_connection_is_asked_for_himself() -> None:
    async def scenario() -> None:
        other = Credentials("other", "other-of-many")
        async with guarded() as harness:
            for topic in TOPICS:
                await make_topic(harness, topic)
            root = await as_root(harness)
            await give_rights(root, entry("Topic:T", "Pub"))
            await give_rights(root, entry("Topic:Other", "Pub"), keys=other)
            user = await warm(harness)
            for _ in range(4):
                assert (await user.channel.call(a_send("Other", keys=other), 10)).code == 0
                assert (await user.channel.call(a_send(keys=other), 10)).code == REFUSED
                assert (await user.channel.call(a_send("Other"), 10)).code == REFUSED
                assert (await user.channel.call(a_send(), 10)).code == 0
                assert (await user.channel.call(a_send(keys=ROOT), 10)).code == 0
            assert stored(harness) == WARM + 12

    run(scenario())
