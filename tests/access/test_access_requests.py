"""The ten requests about users and policies, answered as RocketMQ answers them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from access.signing import (
    GUARDED,
    ROOT,
    Signer,
    as_root,
    as_user,
    entry,
    give_rights,
    guarded,
)
from broker.harness import CONFIG, new_disk, run, running, stored_table
from cometmq.access import access_directory
from cometmq.errors import SettingsError
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.testing.sim_files import SimFiles
    from cometmq.wire.command import Command

CREATE, UPDATE, DELETE, GET, LIST = 3001, 3002, 3003, 3004, 3005
ADD, CHANGE, REMOVE, SHOW, SHOW_ALL = 3006, 3007, 3008, 3009, 3010
REFUSED, ERROR = ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR


async def ask(client: Signer, code: int, body: Any = None, **fields: str) -> Command:
    return await client.call(
        code, body=b"" if body is None else json.dumps(body).encode(), **fields
    )


def acl(*entries: dict[str, Any], kind: str = "Custom", **more: Any) -> dict[str, Any]:
    return {"policies": [{"policyType": kind, "entries": list(entries)}], **more}


def test_users_are_made_changed_listed_and_deleted() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root = await as_root(harness)
            assert (await ask(root, CREATE, {"password": "p"}, username="ann")).code == 0
            shown = json.loads((await ask(root, GET, username="ann")).body)
            assert shown == {
                "username": "ann",
                "password": "p",
                "userType": "Normal",
                "userStatus": "enable",
            }
            change = {"userType": "SUPER", "userStatus": "disable", "password": ""}
            assert (await ask(root, UPDATE, change, username="ann")).code == 0
            shown = json.loads((await ask(root, GET, username="ann")).body)
            assert shown == {**shown, "password": "p", "userType": "Super", "userStatus": "disable"}
            listed = json.loads((await ask(root, LIST)).body)
            assert [one["username"] for one in listed] == ["ann", "root"]
            assert [
                one["username"] for one in json.loads((await ask(root, LIST, filter="oo")).body)
            ] == ["root"]
            assert (await ask(root, LIST, filter="nobody")).body == b""
            assert (await ask(root, DELETE, username="ann")).code == 0
            assert (await ask(root, DELETE, username="ann")).code == 0
            gone = await ask(root, GET, username="ann")
            assert (gone.code, gone.body) == (0, b"")

    run(scenario())


@pytest.mark.parametrize(
    ("code", "body", "fields", "answer"),
    [
        (CREATE, {"password": "p"}, {}, (29, "The username is blank")),
        (CREATE, {"password": " "}, {"username": "u"}, (16, "password can not be blank")),
        (CREATE, None, {"username": "u"}, (16, "password can not be blank")),
        (CREATE, {"password": "p"}, {"username": "root"}, (16, "The user is existed")),
        (
            CREATE,
            {"password": "p", "userType": "Master"},
            {"username": "u"},
            (16, "userType must be Super or Normal"),
        ),
        (UPDATE, {"password": "p"}, {"username": "u"}, (16, "The user is not exist")),
        (
            UPDATE,
            {"userStatus": "disable"},
            {"username": "root"},
            (16, "one super user must remain, enabled"),
        ),
        (DELETE, None, {"username": "root"}, (16, "one super user must remain, enabled")),
        (DELETE, None, {}, (16, "username can not be blank")),
        (GET, None, {}, (29, "The username is blank")),
        (ADD, None, {"subject": "User:root"}, (16, "The body of acl is null")),
        (ADD, acl(), {"subject": "User:root"}, (16, "The policies is empty.")),
        (
            ADD,
            acl(entry("Topic:T", "Pub")),
            {"subject": "User:u"},
            (16, "The subject of User:u is not exist."),
        ),
        (ADD, acl(entry("Topic:T", "Pub")), {}, (16, "The subject type is null.")),
        (
            ADD,
            acl(entry("Queue:T", "Pub")),
            {"subject": "User:root"},
            (16, "The resource is null."),
        ),
        (ADD, acl(entry("Topic:T")), {"subject": "User:root"}, (16, "The actions is empty.")),
        (
            ADD,
            acl(entry("Topic:T", "Any")),
            {"subject": "User:root"},
            (16, "The actions can not be Any."),
        ),
        (
            ADD,
            acl(entry("Topic:T", "Pub", sourceIps=["host"])),
            {"subject": "User:root"},
            (16, "The source ip is invalid."),
        ),
        (
            ADD,
            acl(entry("Topic:T", "Pub", decision="Perhaps")),
            {"subject": "User:root"},
            (16, "The decision is null or illegal."),
        ),
        (REMOVE, None, {}, (16, "The subject is null.")),
        (REMOVE, None, {"subject": "User:u"}, (16, "The subject is not exist.")),
        (REMOVE, None, {"subject": "User:root"}, (16, "The acl is not exist.")),
        (
            REMOVE,
            None,
            {"subject": "User:root", "resource": "Tpic:T"},
            (16, "The resource is null."),
        ),
        (SHOW, None, {"subject": "User:u"}, (16, "The subject is not exist.")),
    ],
)
def test_what_cannot_be_is_refused_with_rocketmqs_remark(
    code: int, body: Any, fields: dict[str, str], answer: tuple[int, str]
) -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            found = await ask(await as_root(harness), code, body, **fields)
            assert (found.code, found.remark) == answer

    run(scenario())


def test_policies_are_added_replaced_listed_and_deleted() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, of_user = await as_root(harness), {"subject": "User:user"}
            await give_rights(root, entry("Topic:T", "Pub", "SUB"), entry("Group:G*", "Sub"))
            changed = entry("Topic:T", "all", decision="deny", sourceIps=["10.0.0.0/8"])
            assert (await ask(root, CHANGE, acl(changed), **of_user)).code == 0
            spare = acl(entry("*", "Get"), kind="Default", subject="User:user")
            assert (await ask(root, ADD, spare)).code == 0
            custom = [
                {
                    "resource": "Topic:T",
                    "actions": ["All"],
                    "sourceIps": ["10.0.0.0/8"],
                    "decision": "Deny",
                },
                {"resource": "Group:G*", "actions": ["Sub"], "decision": "Allow"},
            ]
            default = [{"resource": "*", "actions": ["Get"], "decision": "Allow"}]
            shown = json.loads((await ask(root, SHOW, **of_user)).body)
            assert shown == {
                "subject": "User:user",
                "policies": [
                    {"policyType": "Custom", "entries": custom},
                    {"policyType": "Default", "entries": default},
                ],
            }
            assert json.loads((await ask(root, SHOW_ALL)).body) == [shown]
            part = await ask(root, SHOW_ALL, resourceFilter="Group")
            assert json.loads(part.body)[0]["policies"] == [
                {"policyType": "Custom", "entries": custom[1:]}
            ]
            assert (await ask(root, SHOW_ALL, subjectFilter="other")).body == b""
            assert (await ask(root, REMOVE, resource="Topic:T", **of_user)).code == 0
            assert (await ask(root, REMOVE, resource="Group:G*", **of_user)).code == 0
            left = json.loads((await ask(root, SHOW, **of_user)).body)
            assert left["policies"] == [{"policyType": "Default", "entries": default}]
            assert (await ask(root, REMOVE, **of_user)).code == 0
            assert (await ask(root, SHOW, **of_user)).body == b""

    run(scenario())


def test_only_a_super_user_makes_and_changes_super_users_and_sees_passwords() -> None:
    async def scenario() -> None:
        async with guarded() as harness:
            root, user = await as_root(harness), await as_user(harness)
            await give_rights(root, entry("Cluster:DefaultCluster", "All"))
            made = await ask(user, CREATE, {"password": "p", "userType": "Super"}, username="ann")
            assert (made.code, made.remark) == (
                ERROR,
                "The super user can only be create by super user",
            )
            raised = await ask(user, UPDATE, {"userType": "Super"}, username="user")
            assert (raised.code, raised.remark) == (
                ERROR,
                "The super user can only be update by super user",
            )
            for code, body in ((UPDATE, {"password": "mine"}), (DELETE, None)):
                refused = await ask(user, code, body, username="root")
                assert (refused.code, refused.remark) == (
                    REFUSED,
                    "The super user can only be update by super user",
                )
            assert (await ask(user, CREATE, {"password": "p"}, username="ann")).code == 0
            for answer in (await ask(user, LIST), await ask(user, GET, username="root")):
                assert b"password" not in answer.body
                assert b"root" in answer.body

    run(scenario())


def test_users_and_policies_outlive_the_broker_and_the_first_user_is_not_made_again() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with guarded(disk=disk) as harness:
            root = await as_root(harness)
            await give_rights(root, entry("Topic:T", "Pub"))
            assert (await ask(root, UPDATE, {"password": "new"}, username="root")).code == 0
        assert set(stored_table(disk, "access.json")) == {"users", "acls"}
        async with guarded(disk=disk) as harness:
            assert (await ask(await as_root(harness), LIST)).remark == "check signature failed."
            assert (await (await as_user(harness)).send("T")).code == 0
            root = await as_root(harness)
            root.keys = ROOT._replace(secret_key="new")
            assert len(json.loads((await ask(root, LIST)).body)) == 2

    run(scenario())


def test_a_change_that_the_disk_does_not_take_is_not_in_force() -> None:
    async def scenario() -> None:
        disk = new_disk()
        async with guarded(disk=disk) as harness:
            root = await as_root(harness)
            disk.room = 0
            refused = await ask(root, CREATE, {"password": "p"}, username="ann")
            assert refused.code == ERROR
            assert "access.json cannot be written" in (refused.remark or "")
            assert (await ask(root, GET, username="ann")).body == b""
            disk.room = None
            assert (await ask(root, CREATE, {"password": "p"}, username="ann")).code == 0

    run(scenario())


def test_an_open_broker_refuses_them_and_says_why() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = Signer(*(lambda c: (c.channel, c.asked))(await harness.client()))
            for code in range(3001, 3011):
                answer = await ask(client, code, {"password": "p"}, username="u", subject="User:u")
                assert answer.code == ERROR
                assert "set authenticationEnabled=true" in (answer.remark or "")

    run(scenario())


def test_users_and_entries_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_directory, "USERS_MAX", 2)
    monkeypatch.setattr(access_directory, "ENTRIES_MAX", 2)

    async def scenario() -> None:
        async with guarded() as harness:
            root = await as_root(harness)
            await give_rights(root, entry("Topic:T", "Pub"), entry("Topic:U", "Pub"))
            more = await ask(root, ADD, acl(entry("Topic:V", "Pub")), subject="User:user")
            assert more.remark == "a user has 2 entries at most; use prefixes"
            third = await ask(root, CREATE, {"password": "p"}, username="third")
            assert third.remark == "there are 2 users already; delete some"
            long = await ask(root, CREATE, {"password": "p"}, username="u" * 256)
            assert long.code == REFUSED

    run(scenario())


def leave(disk: SimFiles, text: str) -> None:
    disk.make_dir(CONFIG)
    disk.write(CONFIG / "access.json", text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"users":[]}',
        '{"users":[{"username":"u"}],"acls":[]}',
        '{"users":3,"acls":[]}',
    ],
)
def test_a_broken_file_of_users_is_refused_at_the_start(text: str) -> None:
    async def scenario() -> None:
        disk = new_disk()
        leave(disk, text)
        with pytest.raises(SettingsError, match="cannot be read"):
            async with guarded(GUARDED, disk=disk):
                pass
        assert disk.read(CONFIG / "access.json") == text.encode()

    run(scenario())
