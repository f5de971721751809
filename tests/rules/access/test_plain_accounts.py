"""Accounts of ACL 1.0 become users and policies that decide as their file says."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq.errors import SettingsError
from cometmq.model.access import Action, Resource, ResourceType
from cometmq.rules.access.plain_accounts import rules_of_accounts

ACCOUNT = {
    "accessKey": "RocketMQ",
    "secretKey": "12345678",
    "whiteRemoteAddress": "192.168.0.*",
    "admin": "false",
    "defaultTopicPerm": "DENY",
    "defaultGroupPerm": "SUB",
    "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
    "groupPerms": ["groupA=DENY", "groupB=PUB|SUB"],
}
FILE: dict[str, Any] = {
    "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.{1,2}"],
    "accounts": [
        ACCOUNT,
        {"accessKey": "boss", "secretKey": "boss-secret", "admin": "true"},
    ],
}


def may(kind: ResourceType, name: str, action: Action) -> bool:
    rules = rules_of_accounts(FILE)
    user = rules.users["RocketMQ"]
    return rules.denial(user, Resource(kind, name), (action,), "127.0.0.1") is None


@pytest.mark.parametrize(
    ("kind", "name", "action", "is_allowed"),
    [
        (ResourceType.TOPIC, "topicA", Action.SUB, False),
        (ResourceType.TOPIC, "topicB", Action.PUB, True),
        (ResourceType.TOPIC, "topicB", Action.SUB, True),
        (ResourceType.TOPIC, "topicC", Action.PUB, False),
        (ResourceType.TOPIC, "topicC", Action.SUB, True),
        (ResourceType.TOPIC, "another", Action.PUB, False),
        (ResourceType.TOPIC, "RMQ_SYS_TRACE_TOPIC", Action.PUB, True),
        (ResourceType.TOPIC, "topicB", Action.DELETE, False),
        (ResourceType.GROUP, "groupA", Action.SUB, False),
        (ResourceType.GROUP, "another", Action.SUB, True),
        (ResourceType.CLUSTER, "c", Action.LIST, True),
        (ResourceType.CLUSTER, "c", Action.UPDATE, False),
    ],
)
def test_permissions_by_name_stand_before_defaults(
    kind: ResourceType, name: str, action: Action, is_allowed: bool
) -> None:
    assert may(kind, name, action) is is_allowed


def test_admins_are_super_users_and_white_addresses_need_no_signature() -> None:
    rules = rules_of_accounts(FILE)
    assert [user.is_super for user in rules.users.values()] == [False, True]
    assert rules.is_open_to("10.10.103.7")
    assert rules.is_open_to("192.168.0.2")
    assert not rules.is_open_to("192.168.0.3")
    assert rules.is_trusted("RocketMQ", "192.168.0.9")
    assert not rules.is_trusted("boss", "192.168.0.9")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"accounts": []}, "it has no accounts"),
        ({"accounts": "x"}, "accounts of the file is no list"),
        ({"acounts": []}, "unknown key acounts"),
        ({"globalWhiteRemoteAddresses": ["host"]}, "'host' is no address"),
        ({"accounts": [{**ACCOUNT, "secretKey": ""}]}, "account 1 needs an accessKey and a"),
        ({"accounts": [ACCOUNT, ACCOUNT]}, "two accounts have the accessKey RocketMQ"),
        ({"accounts": [{**ACCOUNT, "defaultTopicPerm": "ALL"}]}, "'ALL' is none of DENY, PUB"),
        ({"accounts": [{**ACCOUNT, "topicPerms": ["t"]}]}, "write NAME=PERMISSION"),
        ({"accounts": [{**ACCOUNT, "whiteRemoteAddress": "1.2"}]}, "'1.2' is no address"),
        ({"accounts": [{**ACCOUNT, "admin": "yes"}]}, "must be true or false"),
        ({"accounts": [{**ACCOUNT, "secret": "s"}]}, "unknown key secret"),
        ({"accounts": ["x"]}, "account 1 is no mapping"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_without_secrets(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        rules_of_accounts({**FILE, **change})
    assert problem in str(caught.value)
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    "where",
    [*("topicPerms", "groupPerms", "defaultTopicPerm", "admin"), "whiteRemoteAddress", "accessKey"],
)
def test_what_unfolds_without_end_is_refused_and_not_shown(where: str) -> None:
    unfolding = ["x"]
    for _ in range(40):
        unfolding = [unfolding] * 9  # type: ignore[list-item]
    account = {"accessKey": "a", "secretKey": "s", where: unfolding}
    with pytest.raises(SettingsError) as caught:
        rules_of_accounts({"accounts": [account], "dataVersion": unfolding})
    assert len(str(caught.value)) < 100
