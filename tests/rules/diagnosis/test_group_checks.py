"""What the doctor says of topics and groups, word for word: the corners that are hard to plant."""

from __future__ import annotations

from dataclasses import replace

from cometmq.model.cluster_facts import MemberFacts
from cometmq.model.subscription import ConsumeType, MessageModel
from cometmq.rules.group_members import ADVICE, WHY
from rules.diagnosis.cluster_examples import broker, findings, group, member, route, said


def test_a_write_protected_broker_is_named_by_its_own_setting() -> None:
    found = said(brokers=(broker({}, brokerPermission="4"),), routes={"T": route(a=6)})
    assert found[1:] == [
        (
            *("fault", "write permission", "a"),
            "it is write-protected: its brokerPermission is 4",
            "set it to 6 when it may take messages again",
        )
    ]


def test_a_write_protected_broker_is_named_behind_one_that_takes_messages() -> None:
    second = replace(broker({}, brokerPermission="4"), broker_name="b")
    found = said(brokers=(broker({}), second), routes={"T": route(a=6, b=6)})
    assert [one[1:3] for one in found[2:]] == [("write permission", "b")]


def test_a_broker_none_of_whose_topics_may_be_written_is_named() -> None:
    routes = {"T": route(a=4, b=6), "U": route(a=4)}
    found = said(brokers=(broker({}, brokerPermission="6"),), routes=routes)
    assert found[1:] == [
        (
            *("fault", "write permission", "a"),
            "none of its topics may be written, by what name servers say",
            "if mqadmin wipeWritePerm was used, undo it with addWritePerm",
        )
    ]
    routes["U"] = route(a=6)
    assert [one[1] for one in said(brokers=(broker({}),), routes=routes)] == ["broker"]


def test_a_topic_that_may_not_be_read_is_a_notice_and_a_fault_where_a_group_wants_it() -> None:
    what = "it may not be read on b, c"
    advice = "let it be read again: cometmq topic alter T --perm rw"
    routes = {"T": route(a=6, b=2, c=0), "S": route(a=6)}
    (found,) = said(routes=routes)
    assert found == (
        *("notice", "read permission", "T", what),
        f"{advice}, unless it is on purpose",
    )
    found = said(routes=routes, groups=(group(member("x", 0, 1)),))[0]
    assert found == ("fault", "read permission", "T", f"{what}, and is wanted by g", advice)


def test_a_topic_that_nobody_knows_is_named_with_the_groups_that_wait() -> None:
    groups = [replace(group(member("x")), group=f"g{number}") for number in range(10)]
    found = said(groups=tuple(groups))
    assert found[0] == (
        *("fault", "topic", "T"),
        "no name server knows it, and it is wanted by g0, g1, g2, g3, g4, g5, g6, g7 and 2 more",
        "create it: cometmq topic create T",
    )
    assert [one[:3] for one in found[1:]] == [("ok", "group", f"g{each}") for each in range(10)]
    what = said(groups=tuple(groups[:8]))[0][3]
    assert what.endswith("it is wanted by g0, g1, g2, g3, g4, g5, g6, g7")


def test_members_that_share_the_queues_are_well() -> None:
    assert not findings(group=group(member("x", 0), member("y", 1)))
    found = said(routes={"T": route()}, groups=(group(member("x", 0, 1)),))
    assert found == [("ok", "group", "g", "1 member; each queue has an owner", "")]


def test_a_group_without_a_member_is_a_notice() -> None:
    found = said(groups=(group(),))
    advice = "start a consumer of it, or give the name of another group"
    assert found == [("notice", "group", "g", "no member of it is online", advice)]


def test_nothing_is_said_of_owners_while_a_member_does_not_answer() -> None:
    silent = MemberFacts(client_id="y", problem="no answer within 3 s")
    found = said(routes={"T": route()}, groups=(group(silent, member("x", 0), member("z", 0)),))
    assert found == [
        (
            *("notice", "group", "g"),
            "the member y did not say what it does: no answer within 3 s",
            "see whether that process hangs; its queues are not checked",
        )
    ]


def test_orderly_and_concurrent_members_are_named() -> None:
    both = group(member("x", 0, order="true"), member("y", 1))
    found = said(routes={"T": route()}, groups=(both,))
    what = "its members differ: x consumes in order, y concurrently"
    assert found == [("fault", "subscriptions", "g", what, f"{ADVICE}: {WHY}")]


def test_each_kind_of_member_that_differs_from_the_first_is_named_once() -> None:
    tags = (("w", "A"), ("x", "A"), ("y", "B"), ("z", "B"))
    members = [member(name, at % 2, tags=text) for at, (name, text) in enumerate(tags)]
    found = [what for check, what in findings(group=group(*members)) if check == "subscriptions"]
    assert found == ["its members differ: of topic T w wants 'A', y 'B'"]
    many = group(*[member(f"m{at}", tags=f"tag{at}") for at in range(20)])
    found = [what for check, what in findings(group=many) if check == "subscriptions"]
    assert len(found) == 7, "eight kinds are compared, the first one among them"


def test_a_queue_with_two_owners_is_named() -> None:
    both = group(member("x", 0, 1), member("y", 1))
    assert said(routes={"T": route()}, groups=(both,)) == [
        (
            *("fault", "queue owners", "g", "queue a:1 of T have more than one owner: x, y"),
            "look again in a minute; if it stays, give the members the same strategy",
        )
    ]


def test_queues_without_an_owner_are_named_and_many_of_them_counted() -> None:
    advice = (
        "let all members have the same allocation strategy and name servers, and restart one that "
        "holds none; until then their messages wait"
    )
    (found,) = said(routes={"T": route(2)}, groups=(group(member("x", 0)),))
    assert found == ("fault", "queue owners", "g", "no member consumes queue a:1 of T", advice)
    (found,) = said(routes={"T": route(12)}, groups=(group(member("x", 0)),))
    shown = ", ".join(f"a:{number}" for number in range(1, 9))
    assert found[3] == f"no member consumes queues {shown} and 3 more of T"
    (found,) = said(routes={"T": route(9)}, groups=(group(member("x", 0)),))
    assert found[3] == f"no member consumes queues {shown} of T"


def test_a_queue_that_its_member_drops_has_no_owner() -> None:
    leaves = member("x", 0, 1)
    assert leaves.info is not None
    for queue, state in leaves.info.mq_table.items():
        if queue.queue_id:
            leaves.info.mq_table[queue] = replace(state, dropped=True)
    found = findings(group=group(leaves))
    assert found == [("queue owners", "no member consumes queue a:1 of T")]


def test_members_for_whom_no_queue_is_left_are_named() -> None:
    members = group(member("x", 0), member("y", 1), member("z"))
    assert said(routes={"T": route()}, groups=(members,)) == [
        (
            *("notice", "queue owners", "g"),
            "no queue is left for z: the group has more members than queues",
            "give the topic more queues, or stop those members",
        )
    ]


def test_a_member_that_only_has_the_retry_queue_is_idle() -> None:
    found = findings(group=group(member("x", 0, 1), member("y", 0, of="%RETRY%g")))
    assert found == [
        ("queue owners", "no queue is left for y: the group has more members than queues")
    ]


def test_members_that_broadcast_each_have_all_queues() -> None:
    all_of_them = group(
        member("x", 0, 1), member("y", 0, 1), message_model=MessageModel.BROADCASTING
    )
    assert not findings(group=all_of_them)


def test_nothing_is_said_of_owners_where_the_broker_hands_messages_out_singly() -> None:
    assert not findings(group=group(member("x"), consume_type=ConsumeType.CONSUME_POP))
