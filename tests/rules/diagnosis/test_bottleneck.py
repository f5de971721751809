"""What bounds a group, by two moments of it; each cause on real members is in tests/client."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.admin_stats import ConsumerRunningInfo
from cometmq.model.group_work import GroupMoment, MemberMoment, MemberWork, QueueWork
from cometmq.model.queue import MessageQueue
from cometmq.rules.diagnosis.bottleneck import find_bottleneck
from cometmq.rules.diagnosis.frequent_keys import FADE, FrequentKeys

QUEUES = [MessageQueue("orders", "b0", number) for number in range(4)]


def member(name: str, queues: list[MessageQueue], at: float, **more: object) -> MemberMoment:
    """A member that handles 100 messages a second with 10 of its 20 threads, 0.1 s each."""
    work = MemberWork(
        busy=10,
        calls=100 * at,
        done=100 * at,
        busy_s=10 * at,
        pulls=10 * at,
        pull_s=0.01 * at,
        queues={queue: QueueWork(position=int(25 * at), cached=50) for queue in queues},
    )
    return MemberMoment(
        client_id=name,
        info=ConsumerRunningInfo(),
        work=replace(work, **more),  # type: ignore[arg-type]
    )


def moments(*members: list[MemberMoment], **more: object) -> tuple[GroupMoment, GroupMoment]:
    before, now = (
        GroupMoment(
            group="g",
            at_s=at,
            members=tuple(each[number] for each in members),
            ends=dict.fromkeys(QUEUES, 100_000),
        )
        for number, at in enumerate((10.0, 20.0))
    )
    return before, replace(now, **more)  # type: ignore[arg-type]


def named(*members: list[MemberMoment], **more: object) -> list[str]:
    return [cause.name for cause in find_bottleneck(*moments(*members, **more)).causes]


def pair(name: str, queues: list[MessageQueue] = QUEUES, **more: object) -> list[MemberMoment]:
    return [member(name, queues, at, **more) for at in (10.0, 20.0)]


def test_a_group_without_members_says_so() -> None:
    assert named() == ["no member"]


def test_a_group_that_keeps_up_is_bound_by_nothing() -> None:
    found = find_bottleneck(*moments(pair("a"), ends=dict.fromkeys(QUEUES, 510)))
    assert found.cause.name == "nothing"
    assert found.changes == ()


def test_what_nothing_explains_is_called_unknown() -> None:
    assert named(pair("a")) == ["unknown"]


def test_reads_from_disk_are_named_by_our_brokers_count() -> None:
    one = [member("a", QUEUES, at, pull_s=0.2 * at, pulls=10 * at) for at in (10.0, 20.0)]
    before, now = moments(one, cold_reads={"b0": 700.0})
    found = find_bottleneck(replace(before, cold_reads={"b0": 600.0}), now)
    assert found.cause.name == "disk reads"
    assert "100 reads waited" in found.cause.what


def test_slow_pulls_of_brokers_that_say_nothing_are_taken_for_reads_from_disk() -> None:
    one = [member("a", QUEUES, at, pull_s=0.9 * at, pulls=10 * at) for at in (10.0, 20.0)]
    assert named(one) == ["disk reads"]


def test_members_that_compute_differ_from_those_that_wait() -> None:
    one = [member("a", QUEUES, at, busy=20, busy_s=20 * at, cpu_s=0.98 * at) for at in (10.0, 20.0)]
    found = find_bottleneck(*moments(one))
    assert found.cause.name == "few processes"
    gain = {change.name: change.is_gain for change in found.changes}
    assert gain["processes"]


def test_a_queue_in_order_that_no_member_has_is_named() -> None:
    assert named(pair("a", QUEUES[:3], order="queue", busy=2))[0] == "held lock"


def test_a_member_that_does_not_answer_is_named() -> None:
    silent = MemberMoment(client_id="b", problem="timed out")
    assert named(pair("a"), [silent, silent]) == ["silent member"]


def test_a_member_that_began_anew_is_counted_from_its_start() -> None:
    one = pair("a")
    again = replace(one[1], work=replace(one[1].work, done=30.0, calls=30.0))
    assert find_bottleneck(*moments([one[0], again])).rate == pytest.approx(3.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1e4), st.integers(1, 50), st.integers(0, 60),
                  st.sampled_from(["none", "queue", "key"]), st.integers(0, 9)),
        max_size=4,
    ),
    st.lists(st.integers(0, 100_000), max_size=4),
)  # fmt: skip
def test_whatever_is_seen_there_is_an_answer_and_ranges_are_narrow(works, ends):
    members = []
    for number, (done, busy_s, threads, busy, order, lanes) in enumerate(works):
        queues = {
            queue: QueueWork(position=lanes * 9, lanes=lanes, keys={"k": 0.5} if lanes else {})
            for queue in QUEUES[number % 4 :]
        }
        work = MemberWork(
            order=order, threads=threads, busy=busy, calls=done, done=done, busy_s=busy_s,
            queues=queues,
        )  # fmt: skip
        none = MemberMoment(client_id=str(number), info=ConsumerRunningInfo())
        members.append([none, replace(none, work=work)])
    found = find_bottleneck(*moments(*members, ends=dict(zip(QUEUES, ends, strict=False))))
    assert found.lines()
    assert found.as_json()["group"] == "g"
    for change in found.changes:
        assert 0 < change.low <= change.high <= 2 * change.low


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=400))
def test_a_frequent_key_is_always_kept(keys: list[str]) -> None:
    counted = FrequentKeys(4)
    counted.add(keys)
    shares = counted.shares(4)
    for key in set(keys):
        if keys.count(key) > len(keys) / 4:
            assert shares[key] <= round(keys.count(key) / len(keys), 3)


def test_a_hot_key_shows_its_share_and_rare_ones_show_little() -> None:
    counted = FrequentKeys()
    counted.add("hot" if number % 5 else f"k{number}" for number in range(4_000))
    shares = counted.shares(2)
    assert shares["hot"] == 0.8
    assert max(share for key, share in shares.items() if key != "hot") < 0.01


def test_old_keys_fade_and_memory_is_bounded() -> None:
    counted = FrequentKeys(8)
    for number in range(3 * FADE):
        counted.add([f"old{number % 20}"])
    counted.add(["new"] * FADE)
    shares = counted.shares(100)
    assert len(shares) == 8
    assert next(iter(shares)) == "new"
    assert shares["new"] > 0.3
