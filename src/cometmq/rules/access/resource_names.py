"""Which resource stands for a topic or a group, and which ones a policy covers.

Java: Resource.isMatch, Resource.ofGroup.
"""

from __future__ import annotations

from cometmq.model.access import Resource, ResourcePattern, ResourceType
from cometmq.model.topic import RETRY_PREFIX


def matches(policy: Resource, asked: Resource) -> bool:
    """Whether a policy's resource covers one that a request names."""
    if policy.type is not asked.type:
        return policy.type is ResourceType.ANY
    if policy.pattern is ResourcePattern.LITERAL:
        return policy.name == asked.name
    return policy.pattern is ResourcePattern.ANY or asked.name.startswith(policy.name)


def resource_of_topic(topic: str) -> Resource:
    """What stands for a topic: the topic, or for a retry topic its group."""
    if topic.startswith(RETRY_PREFIX):
        return resource_of_group(topic)
    return Resource(ResourceType.TOPIC, topic)


def resource_of_group(group: str) -> Resource:
    """What stands for a consumer group, which may be named by its retry topic."""
    return Resource(ResourceType.GROUP, group.removeprefix(RETRY_PREFIX))
