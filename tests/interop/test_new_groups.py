"""A group that starts amid the first sends to a topic gets all of them, in the Java client too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin

if TYPE_CHECKING:
    from cometmq.testing.cluster import LocalCluster
    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
STARTS = 20


def test_no_java_group_misses_messages_that_arrive_while_it_starts(
    java: JavaHost, cluster: LocalCluster
) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        for number in range(STARTS):
            admin.create_topic(f"NewGroups{number}", 1)
    said = java.run("NewGroups", cluster.namesrv, "NewGroups", STARTS, timeout_s=120)
    assert "END" in said, said
    assert [line for line in said if line.startswith("MISSING")] == []
