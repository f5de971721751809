"""Two members of a group that differ: what the log says."""

from __future__ import annotations

from cometmq.model.admin_stats import ConsumerRunningInfo
from cometmq.model.subscription import ConsumerData, MessageModel, SubscriptionData
from cometmq.rules.group_members import (
    MemberSettings,
    difference,
    settings_in_heartbeat,
    settings_in_running_info,
)


def member(*subscriptions: tuple[str, str], **more: object) -> MemberSettings:
    wanted = tuple(
        SubscriptionData(
            topic=topic,
            sub_string=text,
            tags_set=frozenset(t.strip() for t in text.split("||") if text != "*"),
        )
        for topic, text in subscriptions
    )
    return settings_in_heartbeat(ConsumerData(group_name="g", subscriptions=wanted, **more))


def test_members_that_want_the_same_do_not_differ() -> None:
    one = member(("T", "X || Y"), ("%RETRY%g", "*"))
    other = member(("T", "Y||X"), ("%RETRY%g", "X"))
    assert difference("a", one, "b", other) == ""


def test_what_differs_is_named_with_both_members() -> None:
    said = difference("a", member(("T", "X"), ("U", "*")), "b", member(("T", "Y")))
    assert said == "of topic T a wants 'X', b 'Y'; of topic U a wants '*', b nothing"
    said = difference(
        "a", member(("T", "*")), "b", member(("T", "*"), message_model=MessageModel.BROADCASTING)
    )
    assert said == "a is CLUSTERING, b BROADCASTING"
    one, other = MemberSettings(frozenset(), is_orderly=True), MemberSettings(frozenset())
    assert difference("a", one, "b", other) == "", "it is not known of b"
    said = difference("a", one, "b", other._replace(is_orderly=False))
    assert said == "a consumes in order, b concurrently"


def test_a_member_that_does_not_say_whether_it_keeps_an_order_is_compared_without() -> None:
    assert settings_in_running_info(ConsumerRunningInfo()).is_orderly is None


def test_many_topics_are_counted() -> None:
    many = member(*((f"T{number}", "*") for number in range(7)))
    said = difference("a", many, "b", member())
    assert said.count("wants '*'") == 4
    assert said.endswith("and 3 topics more")
