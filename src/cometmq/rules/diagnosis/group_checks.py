"""Checks of topics and groups: permissions, equal subscriptions, an owner for each queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.model.subscription import ConsumeType, MessageModel
from cometmq.model.topic import is_retry_topic
from cometmq.rules import permission
from cometmq.rules.diagnosis.finding import fault, notice, ok
from cometmq.rules.group_members import ADVICE, WHY, difference, settings_in_running_info
from cometmq.rules.route_queues import subscribe_queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.model.cluster_facts import ClusterFacts, GroupFacts
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import TopicRouteData
    from cometmq.rules.diagnosis.finding import ClusterFinding
    from cometmq.rules.group_members import MemberSettings

_SHOWN = 8
"""Names or numbers listed in one sentence."""


def check_writes(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Brokers none of whose topics may be written."""
    perms: dict[str, list[int]] = {}
    for route in facts.routes.values():
        for data in route.queue_datas:
            perms.setdefault(data.broker_name, []).append(data.perm)
    for one in facts.brokers:
        name, own = one.broker_name, one.config.get("brokerPermission", "")
        if own.isdecimal() and not permission.is_writable(int(own)):
            what = f"it is write-protected: its brokerPermission is {own}"
            advice = "set it to 6 when it may take messages again"
        elif name in perms and not any(map(permission.is_writable, perms[name])):
            what = "none of its topics may be written, by what name servers say"
            advice = "if mqadmin wipeWritePerm was used, undo it with addWritePerm"
        else:
            continue
        yield fault("write permission", name, what, advice)


def check_topics(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Topics that cannot be read, worst where a group wants them."""
    readers: dict[str, list[str]] = {}
    for group in facts.groups:
        for topic in _wanted(group):
            readers.setdefault(topic, []).append(group.group)
    for topic, route in sorted(facts.routes.items()):
        closed = [d.broker_name for d in route.queue_datas if not permission.is_readable(d.perm)]
        if not closed:
            continue
        what = f"it may not be read on {', '.join(closed)}"
        advice = f"let it be read again: cometmq topic alter {topic} --perm rw"
        if groups := readers.get(topic):
            yield fault(
                "read permission", topic, f"{what}, and is wanted by {_list(groups)}", advice
            )
        else:
            yield notice("read permission", topic, what, f"{advice}, unless it is on purpose")
    for topic in sorted(readers.keys() - facts.routes.keys()):
        if not is_retry_topic(topic):
            what = f"no name server knows it, and it is wanted by {_list(readers[topic])}"
            yield fault("topic", topic, what, f"create it: cometmq topic create {topic}")


def check_groups(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Each group: members online, equal in what they want, an owner for each queue."""
    for group in facts.groups:
        found = list(_group(group, facts.routes))
        yield from found
        if not found:
            members = (
                f"{len(group.members)} members, equal" if len(group.members) > 1 else "1 member"
            )
            yield ok("group", group.group, f"{members}; each queue has an owner")


def _group(group: GroupFacts, routes: dict[str, TopicRouteData]) -> Iterator[ClusterFinding]:
    if not group.members:
        advice = "start a consumer of it, or give the name of another group"
        yield notice("group", group.group, "no member of it is online", advice)
        return
    for one in group.members:
        if one.info is None:
            what = f"the member {one.client_id} did not say what it does: {one.problem}"
            advice = "see whether that process hangs; its queues are not checked"
            yield notice("group", group.group, what, advice)
    yield from _inequalities(group)
    if group.message_model is MessageModel.CLUSTERING:
        yield from _ownership(group, routes)


def _inequalities(group: GroupFacts) -> Iterator[ClusterFinding]:
    """One finding for each kind of member that differs from the first."""
    known = [
        (one.client_id, settings_in_running_info(one.info)) for one in group.members if one.info
    ]
    seen: set[MemberSettings] = set()
    for client_id, settings in known:
        if settings not in seen and len(seen) < _SHOWN:
            seen.add(settings)
            if found := difference(*known[0], client_id, settings):
                what = f"its members differ: {found}"
                yield fault("subscriptions", group.group, what, f"{ADVICE}: {WHY}")


def _ownership(group: GroupFacts, routes: dict[str, TopicRouteData]) -> Iterator[ClusterFinding]:
    """Queues that no member has, queues that two have, and members without a queue."""
    answered = [one for one in group.members if one.info is not None]
    if len(answered) < len(group.members) or group.consume_type is ConsumeType.CONSUME_POP:
        return  # whoever did not answer may have the rest
    owners: dict[MessageQueue, list[str]] = {}
    for one in answered:
        assert one.info is not None
        for queue, state in one.info.mq_table.items():
            if not state.dropped:
                owners.setdefault(queue, []).append(one.client_id)
    for topic in sorted(_wanted(group)):
        queues = _queues_of(topic, routes)
        free = [queue for queue in queues if queue not in owners]
        if free:
            what = f"no member consumes {_numbers(free)} of {topic}"
            advice = (
                "let all members have the same allocation strategy and name servers, and "
                "restart one that holds none; until then their messages wait"
            )
            yield fault("queue owners", group.group, what, advice)
        if twice := [queue for queue in queues if len(owners.get(queue, ())) > 1]:
            who = ", ".join(owners[twice[0]])
            what = f"{_numbers(twice)} of {topic} have more than one owner: {who}"
            yield fault(
                "queue owners",
                group.group,
                what,
                "look again in a minute; if it stays, give the members the same strategy",
            )
    idle = [
        one.client_id
        for one in answered
        if one.info is not None
        and not any(not is_retry_topic(queue.topic) for queue in one.info.mq_table)
    ]
    if idle and any(_queues_of(topic, routes) for topic in _wanted(group)):
        what = f"no queue is left for {_list(idle)}: the group has more members than queues"
        advice = "give the topic more queues, or stop those members"
        yield notice("queue owners", group.group, what, advice)


def _wanted(group: GroupFacts) -> set[str]:
    """The topics that any member subscribes, but for the group's retry topic."""
    answers = [one.info for one in group.members if one.info is not None]
    topics = {each.topic for info in answers for each in info.subscriptions}
    return {topic for topic in topics if not is_retry_topic(topic)}


def _queues_of(topic: str, routes: dict[str, TopicRouteData]) -> list[MessageQueue]:
    route = routes.get(topic)
    return subscribe_queues(topic, route) if route else []


def _numbers(queues: list[MessageQueue]) -> str:
    shown = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues[:_SHOWN])
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return f"queue{'s' if len(queues) > 1 else ''} {shown}{more}"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
