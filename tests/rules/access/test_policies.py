"""The most specific entry that matches decides; without one nothing is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.access import (
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
)
from cometmq.rules.access.access_rules import AccessRules
from cometmq.rules.access.policies import merged
from cometmq.wire.bodies.access import resource_of

HERE, ELSEWHERE = "10.0.0.1", "192.168.0.1"
NORMAL, SUPER = User("u", "p"), User("root", "p", is_super=True)
ALLOW, DENY = Decision.ALLOW, Decision.DENY


def entry(text: str, *actions: Action, decision: Decision = ALLOW, ips: str = "") -> PolicyEntry:
    found = resource_of(text)
    assert found is not None
    return PolicyEntry(found, actions or (Action.SUB,), decision, tuple(ips.split()))


def rules(*custom: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> AccessRules:
    acl = Acl("u", {PolicyType.CUSTOM: custom, PolicyType.DEFAULT: default})
    return AccessRules({"u": NORMAL, "root": SUPER}, {"u": acl})


def may(given_rules: AccessRules, topic: str, action: Action = Action.SUB, at: str = HERE) -> bool:
    asked = Resource(ResourceType.TOPIC, topic)
    return given_rules.denial(NORMAL, asked, (action,), at) is None


def test_without_a_policy_nothing_is_allowed() -> None:
    asked = Resource(ResourceType.TOPIC, "T")
    reason = AccessRules({"u": NORMAL}).denial(NORMAL, asked, (Action.SUB,), HERE)
    assert reason == (
        "User:u has no permission to access Topic:T from 10.0.0.1, no matched policies."
    )


def test_a_denial_says_that_it_was_decided() -> None:
    asked = Resource(ResourceType.TOPIC, "T")
    reason = rules(entry("Topic:T", decision=DENY)).denial(NORMAL, asked, (Action.SUB,), HERE)
    assert reason is not None
    assert reason.endswith("the decision is deny.")


def test_a_super_user_needs_no_policy() -> None:
    asked = Resource(ResourceType.TOPIC, "T")
    assert rules().denial(SUPER, asked, (Action.SUB,), HERE) is None


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ((entry("Topic:*", decision=DENY), entry("Topic:T")), True),
        ((entry("Topic:T", decision=DENY), entry("Topic:*")), False),
        ((entry("Topic:T*", decision=DENY), entry("Topic:Te*")), True),
        ((entry("Topic:Te*", decision=DENY), entry("Topic:T*")), False),
        ((entry("*"), entry("Topic:*", decision=DENY)), False),
        ((entry("*", decision=DENY), entry("Topic:*")), True),
        ((entry("Topic:Test"), entry("Topic:Test", decision=DENY)), True),
        ((entry("Group:Test"),), False),
        ((entry("Topic:Test", Action.PUB),), False),
        ((entry("Topic:Test", Action.ALL),), True),
    ],
)
def test_the_most_specific_entry_decides(
    entries: tuple[PolicyEntry, ...], is_allowed: bool
) -> None:
    topic = "T" if any(str(each.resource) == "Topic:T" for each in entries) else "Test"
    assert may(rules(*entries), topic) is is_allowed
    assert may(rules(*reversed(entries)), topic) is is_allowed


def test_default_policies_count_only_where_no_custom_one_matches() -> None:
    found = rules(entry("Topic:*", decision=DENY), default=(entry("Topic:T"),))
    assert not may(found, "T")
    assert may(rules(entry("Topic:U"), default=(entry("Topic:T"),)), "T")


def test_an_entry_can_be_bound_to_addresses() -> None:
    found = rules(entry("Topic:T", ips="10.0.0.0/8 127.0.0.1"), entry("Topic:*", decision=DENY))
    assert may(found, "T", at=HERE)
    assert may(found, "T", at="127.0.0.1")
    assert not may(found, "T", at=ELSEWHERE)


def test_a_change_replaces_the_entry_of_its_resource_and_adds_others() -> None:
    before = (entry("Topic:T"), entry("Topic:U"))
    denied, new = entry("Topic:T", decision=DENY), entry("Topic:V")
    assert merged(before, [denied, new]) == (denied, before[1], new)


NAMES = st.text("ab", max_size=3)
TEXTS = st.one_of(
    st.just("*"),
    st.just("Topic:*"),
    NAMES.map("Topic:{}".format),
    NAMES.map("Topic:{}*".format),
    NAMES.map("Group:{}".format),
)
ENTRIES = st.builds(
    lambda text, actions, decision, ips: entry(text, *actions, decision=decision, ips=ips),
    TEXTS,
    st.lists(st.sampled_from([Action.ALL, Action.PUB, Action.SUB, Action.GET]), min_size=1),
    st.sampled_from(list(Decision)),
    st.sampled_from(["", "10.0.0.0/8", "192.168.0.1"]),
)


def is_allowed_slowly(entries: list[PolicyEntry], topic: str, at: str) -> bool:
    """The same decision, as a person makes it: look at each kind of entry, nearest first."""
    nearest = [f"Topic:{topic}"]
    nearest += [f"Topic:{topic[:length]}*" for length in range(len(topic), 0, -1)]
    nearest += ["Topic:*", "*"]
    for text in nearest:
        decisions = {
            each.decision
            for each in entries
            if str(each.resource) == text
            and {Action.ALL, Action.SUB}.intersection(each.actions)
            and (
                not each.source_ips
                or at in ("10.0.0.1" if "/" in each.source_ips[0] else ELSEWHERE)
            )
        }
        if decisions:
            return ALLOW in decisions
    return False


@given(st.lists(ENTRIES, max_size=8), NAMES, st.sampled_from([HERE, ELSEWHERE]))
def test_random_policies_decide_as_their_description_says(
    entries: list[PolicyEntry], topic: str, at: str
) -> None:
    assert may(rules(*entries), topic, at=at) == is_allowed_slowly(entries, topic, at)


@given(st.lists(ENTRIES, max_size=8), NAMES, st.sampled_from([HERE, ELSEWHERE]))
def test_only_an_entry_that_allows_lets_anything_through(
    entries: list[PolicyEntry], topic: str, at: str
) -> None:
    only_denials = [each for each in entries if each.decision is DENY]
    assert not may(rules(*only_denials), topic, at=at)
