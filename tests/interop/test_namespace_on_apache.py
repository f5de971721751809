"""Clients with a namespace, ours and Java's, read each other on Apache's broker and on ours."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, Message, MessageExt, Producer, RetryLater
from interop.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
SPACE, TOPIC, COUNT = "MQ_INST_beside", "Spaced", 12
INSIDE = f"{SPACE}%{TOPIC}"


@pytest.fixture(params=["apache", "ours"])
def namesrv(request: pytest.FixtureRequest) -> str:
    """A name server with Apache's broker, or with ours."""
    served = {"apache": "apache", "ours": "cluster"}[request.param]
    return str(request.getfixturevalue(served).namesrv)


def test_clients_of_one_namespace_read_each_other_and_others_see_their_full_names(
    namesrv: str, java_program: Callable[..., list[str]]
) -> None:
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(INSIDE, queues=2)
    with Producer("senders", namesrv=namesrv, namespace=SPACE) as producer:
        for n in range(COUNT):
            result = producer.send(Message(TOPIC, f"ours {n}".encode(), tags="t", keys=f"k{n}"))
            assert result.queue.topic == TOPIC
    lines = java_program(f"namespace={SPACE}", "send", namesrv, TOPIC, "java-senders", COUNT)
    assert len([line for line in lines if line.startswith("SENT SEND_OK")]) == COUNT

    bodies = {f"{who} {n}" for who in ("ours", "java") for n in range(COUNT)}
    retrying = (f"namespace={SPACE}", "consume-retry")
    lines = java_program(*retrying, namesrv, TOPIC, "java-readers", 2 * COUNT)
    got = [line.split(maxsplit=6) for line in lines if line.startswith("GOT")]
    assert {words[-1] for words in got} == bodies
    assert all(int(words[3]) > 0 for words in got), "each came by the retry topic of the namespace"

    def once_more(messages: Sequence[MessageExt]) -> None:
        assert {message.topic for message in messages} == {TOPIC}
        if any(message.reconsume_times == 0 for message in messages):
            raise RetryLater(delay_level=1)

    ours = read(namesrv, TOPIC, "our-readers", 2 * COUNT, once_more, namespace=SPACE)
    assert {message.body.decode() for message in ours} == bodies

    outside = read(namesrv, INSIDE, "outsiders", 2 * COUNT)
    assert {message.body.decode() for message in outside} == bodies
    with Admin(namesrv=namesrv) as admin:
        topics = set(admin.topics())
        assert {INSIDE, f"%RETRY%{SPACE}%our-readers", f"%RETRY%{SPACE}%java-readers"} <= topics
        assert TOPIC not in topics
        for group in (f"{SPACE}%our-readers", f"{SPACE}%java-readers"):
            until(partial(has_read_all, admin, group), 60)


def has_read_all(admin: Admin, group: str) -> bool:
    return sum(admin.group_offsets(group, INSIDE).values()) == 2 * COUNT
