"""What may bound a group, each judged alone: named, with how sure it is and what to do. Pure.

Facts that stop messages (a lock, a broker that is down) come first; then what the figures suggest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.rules.diagnosis.group_activity import FULL
from cometmq.rules.group_members import ADVICE, difference, settings_in_running_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cometmq.model.queue import MessageQueue
    from cometmq.rules.diagnosis.group_activity import GroupActivity

SLOW_CALL_S = 1.0
"""A handler's call from which on it counts as slow."""
LONG_DELAY_S = 30.0
"""A mean delay of retries from which on it counts as long."""
MANY_THREADS = 20
"""RocketMQ's default: with so many, further members help rather than further threads."""
_SHOWN = 3


class Cause(NamedTuple):
    """What may bound a group; `certainty` is between 0 and 1."""

    name: str
    certainty: float
    what: str
    advice: str


def causes(seen: GroupActivity) -> list[Cause]:
    """All causes that are found, the surest first."""
    found = [cause for check in _CHECKS for cause in check(seen)]
    return sorted(found, key=lambda cause: -cause.certainty)


# ---- facts


def _members(seen: GroupActivity) -> Iterator[Cause]:
    if not seen.now.members:
        yield Cause("no member", 0.99, "no member is connected", "start a consumer of the group")
    silent = [one for one in seen.now.members if one.info is None]
    if silent:
        what = f"{_names([one.client_id for one in silent])} did not answer: {silent[0].problem}"
        yield Cause("silent member", 0.86, what, "see whether that process hangs")


def _unreadable(seen: GroupActivity) -> Iterator[Cause]:
    if queues := seen.now.unreadable:
        topics = sorted({queue.topic for queue in queues})
        share = len(queues) / (len(queues) + len(seen.now.ends))
        what = f"{len(queues)} queues of {_names(topics)} may not be read"
        advice = f"cometmq topic alter {topics[0]} --perm rw"
        yield Cause("read permission", 0.9 + 0.09 * share, what, advice)


def _dead_brokers(seen: GroupActivity) -> Iterator[Cause]:
    if dead := seen.now.dead_brokers:
        name, problem = next(iter(dead.items()))
        what = f"the broker {_names(list(dead))} does not answer: {problem}"
        yield Cause("dead broker", 0.95, what, f"start {name}, or see cometmq doctor")


def _paused(seen: GroupActivity) -> Iterator[Cause]:
    paused = [one.client_id for one in seen.members if one.now.is_paused]
    if paused and seen.lag:
        share = len(paused) / len(seen.members)
        what = f"{_names(paused)} is paused"
        yield Cause("paused consumer", 0.88 + 0.1 * share, what, "call resume() in its program")


def _outages(seen: GroupActivity) -> Iterator[Cause]:
    topics = sorted({topic for one in seen.members for topic in one.now.outages})
    if topics:
        what = f"the circuit breaker of {_names(topics)} is open: handlers failed across keys"
        yield Cause("open breaker", 0.94, what, "see the members' log for what handlers lack")


def _locks(seen: GroupActivity) -> Iterator[Cause]:
    online = {one.client_id for one in seen.now.members}
    dead: dict[MessageQueue, str] = {}
    held: dict[MessageQueue, str] = {}
    for member in seen.members:
        for queue, holder in member.now.lock_holders.items():
            is_dead = holder not in online and holder != "?"
            (dead if is_dead else held)[queue] = holder
    if dead:
        what = (
            f"{_names(sorted(set(dead.values())))}, which is gone, has the lock of {_first(dead)}"
        )
        advice = "wait until it expires, at most queueLockExpireMs (60 s)"
        yield Cause("lock of a dead member", 0.93, what, advice)
    if held:
        what = f"{_names(sorted(set(held.values())))} has the lock of {_first(held)}"
        yield Cause("held lock", 0.92, what, "see what that member's handler does, or end it")
    free = {queue: "" for queue in seen.unowned if seen.order == "queue" and seen.lags[queue]}
    if free and not dead and not held:
        what = f"no member has {_first(free)}, though messages wait there"
        yield Cause("held lock", 0.87, what, "if it stays so, see the log of members for locks")


def _subscriptions(seen: GroupActivity) -> Iterator[Cause]:
    known = [
        (one.client_id, settings_in_running_info(one.info))
        for one in seen.now.members
        if one.info is not None
    ]
    for client_id, settings in known[1:]:
        if what := difference(*known[0], client_id, settings):
            yield Cause("unequal subscriptions", 0.91, f"members differ: {what}", ADVICE)
            return


def _blocked(seen: GroupActivity) -> Iterator[Cause]:
    blocked = {
        queue: one.blocked
        for member in seen.members
        for queue, one in member.now.queues.items()
        if one.blocked
    }
    if blocked:
        what = f"{_first(blocked)} is held up: {next(iter(blocked.values()))}"
        advice = "repair the handler, or give it a policy (OnFailure.dead_letter, skip, store)"
        yield Cause("failing message", 0.9, what, advice)


def _send_backs(seen: GroupActivity) -> Iterator[Cause]:
    if lost := seen.total("not_sent_back"):
        what = f"no broker took {lost:.0f} failed messages back"
        advice = "see that the retry topic of the group may be written"
        yield Cause("failing send-backs", 0.93, what, advice)


# ---- figures


def _flow_control(seen: GroupActivity) -> Iterator[Cause]:
    if not seen.is_behind or seen.is_full or _is_key_bound(seen):
        return
    stopped: dict[str, float] = {}
    for member in seen.members:
        for queue, one in member.queues.items():
            before = member.before.queues.get(queue)
            for limit, spent_s in one.limited_s.items():
                begun_s = before.limited_s.get(limit, 0.0) if before else 0.0
                stopped[limit] = stopped.get(limit, 0.0) + max(0.0, spent_s - begun_s)
    if not stopped or not seen.loaded:
        return
    limit, spent_s = max(stopped.items(), key=lambda item: item[1])
    share = min(1.0, spent_s / seen.seconds / len(seen.loaded))
    if share >= 0.1:
        what = (
            f"flow.{_SETTINGS[limit]} stops pulls {share:.0%} of the time, and {seen.busy:.0f} of "
            f"{seen.slots:.0f} handlers are at work"
        )
        advice = f"raise flow={{'{_SETTINGS[limit]}': ...}}"
        if limit == "span":
            advice += ", or see why the first message of a queue takes so long"
        yield Cause(f"flow control by {limit}", 0.65 + 0.2 * share, what, advice)


_SETTINGS = {"count": "count", "size": "size_mib", "span": "span"}


def _filter(seen: GroupActivity) -> Iterator[Cause]:
    handled = (seen.total("done") + seen.total("failed")) / seen.seconds
    infos = [one.info for one in seen.now.members if one.info is not None]
    filters = sorted(
        {f"{one.sub_string[:40]!r}" for info in infos for one in info.subscriptions
         if one.sub_string not in ("*", "")}
    )  # fmt: skip
    if filters and seen.passed >= 20 and handled < 0.2 * seen.passed and not seen.is_full:
        what = (
            f"the filter {_names(filters)} lets {handled:.0f} of {seen.passed:.0f} messages a "
            "second through"
        )
        yield Cause("filter", 0.82, what, "send what the group wants to a topic of its own")


def _retries(seen: GroupActivity) -> Iterator[Cause]:
    works = [one.now for one in seen.members]
    sent_back = sum(one.sent_back for one in works)
    waiting = sent_back - sum(one.retried for one in works)
    if waiting <= 0:
        return
    delay_s = sum(one.sent_back_delay_s for one in works) / sent_back
    share = waiting / max(1.0, waiting + sum(one.done for one in works))
    if delay_s >= LONG_DELAY_S and share >= 0.1 and not seen.is_full:
        what = (
            f"{waiting:.0f} failed messages wait for their next attempt, "
            f"which comes after {delay_s:.0f} s on average"
        )
        yield Cause("long retries", 0.8, what, "give failures a shorter delay_level, or a policy")


def _disk(seen: GroupActivity) -> Iterator[Cause]:
    if not seen.is_behind or seen.is_full:
        return
    before, pulls = seen.before.cold_reads, seen.total("pulls")
    cold = sum(max(0.0, n - before.get(name, n)) for name, n in seen.now.cold_reads.items())
    pull_s = seen.total("pull_s") / pulls if pulls else 0.0
    if cold >= max(1.0, 0.2 * pulls) and pull_s >= 0.002:
        what = f"{cold:.0f} reads waited for the disk, and a pull takes {pull_s * 1000:.0f} ms"
        yield Cause("disk reads", 0.83, what, _DISK_ADVICE)
    elif pull_s >= 0.05 and not seen.now.cold_reads:
        what = f"a pull takes {pull_s * 1000:.0f} ms, and handlers wait for messages"
        yield Cause("disk reads", 0.6, what, _DISK_ADVICE)


_DISK_ADVICE = "more memory for the broker's page cache, or a larger pull_batch_size"


def _is_key_bound(seen: GroupActivity) -> bool:
    """Whether one key has more of what waits than threads could share."""
    return seen.order == "key" and seen.top_key[1] >= 0.4 and seen.busy < 0.7 * seen.threads


def _skew(seen: GroupActivity) -> Iterator[Cause]:
    if not seen.is_behind or seen.busy >= 0.8 * seen.threads:
        return
    key, share = seen.top_key
    is_uneven = _effective(list(seen.lags.values())) <= 0.5 * len(seen.lags)
    if share >= 0.4 and (seen.order == "key" or (seen.order == "queue" and is_uneven)):
        what = f"{share:.0%} of what waits is of the key {key!r}, which one thread handles"
        advice = "give what is sent with that key more keys, or handle it faster"
        yield Cause("skewed keys", 0.86, what, advice)
    if is_uneven and len(seen.lags) > 1 and (seen.is_full or _has_full_member(seen)):
        queue, lag = max(seen.lags.items(), key=lambda item: item[1])
        what = f"{lag} of {seen.lag} messages wait in {queue}, of {len(seen.lags)} queues"
        advice = "send to all queues alike: keys that spread better, or no choice of queue"
        yield Cause("skewed queues", 0.81, what, advice)


def _has_full_member(seen: GroupActivity) -> bool:
    return any(
        slots and one.busy >= FULL * slots
        for one in seen.members
        if (slots := one.slots(seen.loaded))
    )


def _handlers(seen: GroupActivity) -> Iterator[Cause]:
    """All handlers that can be at work are: what would let more of them, or faster ones, be?"""
    if not seen.is_behind or not seen.is_full:
        return
    at_work = f"all {seen.slots:.0f} handlers that can run at once do, {seen.call_s * 1000:.0f} ms "
    idle = [one.client_id for one in seen.members if not one.queues]
    if idle:
        what = f"{_names(idle)} has no queue: {len(seen.members)} members, {len(seen.lags)} queues"
        yield Cause("idle member", 0.84, what, "give the topic more queues")
    if seen.call_s >= SLOW_CALL_S:
        what = f"a call of the handler takes {seen.call_s:.1f} s; {seen.slots:.0f} are at work"
        yield Cause("slow handler", 0.8, what, "see what the handler waits for")
    cores = seen.total("cpu_s") / seen.seconds
    if cores >= 0.85 * len(seen.members):
        what = f"members compute all the time ({cores:.1f} cores for {len(seen.members)} members)"
        yield Cause("few processes", 0.79, what, 'workers="process", or more members')
    few = [one for one in seen.members if one.now.threads < MANY_THREADS]
    is_uneven = _effective(list(seen.lags.values())) <= 0.5 * len(seen.lags)
    if seen.order == "queue" and seen.slots < 0.9 * seen.threads:
        what = f"{at_work}a call: one for each of {len(seen.lags)} queues, {seen.threads} threads"
        advice = "more queues, or key lanes (order='key')"
        yield Cause("few queues", 0.6 if is_uneven else 0.76, what, advice)
    elif few:
        what = f"{at_work}a call; members have {few[0].now.threads} threads"
        yield Cause("few threads", 0.75, what, "raise consume_threads")
    else:
        what = f"{at_work}a call, of {len(seen.members)} members"
        yield Cause("few members", 0.75, what, "start more members, or raise consume_threads")


def _effective(values: Sequence[float]) -> float:
    """How many equal values would be as uneven as these."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else float(len(values))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _first(queues: dict[MessageQueue, str]) -> str:
    more = f" and {len(queues) - 1} queues more" if len(queues) > 1 else ""
    return f"{min(queues)}{more}"


_CHECKS: tuple[Callable[[GroupActivity], Iterator[Cause]], ...] = (
    _members,
    _unreadable,
    _dead_brokers,
    _paused,
    _outages,
    _locks,
    _subscriptions,
    _blocked,
    _send_backs,
    _flow_control,
    _filter,
    _retries,
    _disk,
    _skew,
    _handlers,
)
