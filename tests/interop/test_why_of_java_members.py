"""`cometmq why` of a group whose members are Java's, on Apache's brokers and on ours."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.rules.diagnosis.bottleneck import Bottleneck
    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
QUEUES, MESSAGES = 4, 4_000
SAMPLED_S = 40.0  # Java's members sample their figures every ten seconds, for the last minute


@pytest.fixture(params=["apache", "ours"])
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name server of a cluster of either kind."""
    if request.param == "apache":
        yield request.getfixturevalue("apache").namesrv
        return
    with LocalCluster() as cluster:
        yield cluster.namesrv


@contextmanager
def slow_group(java: JavaHost, *arguments: object) -> Iterator[None]:
    """Members of the Java client in a JVM of their own."""
    command = [*java.command("SlowGroup"), *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        while (line := child.stdout.readline()).strip() != "READY":
            assert line, "the members did not begin"
        yield
    finally:
        child.kill()
        child.wait(60)
        child.stdout.close()


def why_of(admin: Admin, group: str) -> Bottleneck:
    """What `why` says once Java's members have figures of their own."""
    time.sleep(SAMPLED_S)
    return admin.why(group, 12.0)


@pytest.mark.parametrize(
    ("how", "threads", "cause", "gain"),
    [
        ("orderly", 10, "few queues", "queues"),
        ("concurrently", 2, "few threads", "threads"),
    ],
)
def test_the_bound_of_a_group_of_java_members_is_named(
    namesrv: str, java: JavaHost, how: str, threads: int, cause: str, gain: str
) -> None:
    topic, group = f"WhyJava-{how}", f"why-java-{how}"
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=QUEUES)
        with Producer("why-java", namesrv=namesrv) as producer:
            producer.send_many(Message(topic, b"x", keys=str(n)) for n in range(MESSAGES))
        with slow_group(java, namesrv, topic, group, 2, threads, 100, how):
            found = why_of(admin, group)
            really = 40.0  # four at once, a tenth of a second each
            assert found.cause.name == cause, found.lines()
            assert found.rate == pytest.approx(really, rel=0.25), found.lines()
            assert gain in {change.name for change in found.changes if change.is_gain}
