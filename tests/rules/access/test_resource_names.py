"""Resources are read from the texts of policies, and cover what these texts say."""

from __future__ import annotations

import pytest

from cometmq.model.access import Resource, ResourceType
from cometmq.rules.access.resource_names import matches, resource_of_group, resource_of_topic
from cometmq.wire.bodies.access import resource_of

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.mark.parametrize(
    ("policy", "covered", "others"),
    [
        ("Topic:a", ["Topic:a"], ["Topic:ab", "Group:a", "Topic:"]),
        ("Topic:a*", ["Topic:a", "Topic:ab"], ["Topic:b", "Group:ab"]),
        ("Topic:*", ["Topic:a", "Topic:"], ["Group:a", "Cluster:a"]),
        ("*", ["Topic:a", "Group:b", "Cluster:c"], []),
        ("Topic:", [], ["Topic:a"]),
    ],
)
def test_a_policy_covers(policy: str, covered: list[str], others: list[str]) -> None:
    found = resource_of(policy)
    assert found is not None
    for text in (*covered, *others):
        kind, name = text.split(":")
        asked = Resource(ResourceType(kind), name)
        assert matches(found, asked) == (text in covered), text


def test_a_retry_topic_stands_for_its_group() -> None:
    assert resource_of_topic("%RETRY%readers") == Resource(GROUP, "readers")
    assert resource_of_group("%RETRY%readers") == Resource(GROUP, "readers")
    assert resource_of_topic("%DLQ%readers") == Resource(TOPIC, "%DLQ%readers")
