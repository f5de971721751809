"""The commands about users and policies of servers that guard themselves: `users` and `acls`.

Passwords come from the terminal, without being shown, or from a file: an argument could be read by
every user of the machine. None is printed.
Java: mqadmin createUser, updateUser, deleteUser, listUser, createAcl, deleteAcl, listAcl
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.cluster_access import cluster_options
from cometmq.cli.command_group import CommandGroup
from cometmq.cli.printed_columns import print_json, print_table
from cometmq.cli.shared_options import json_option
from cometmq.errors import SettingsError
from cometmq.wire.bodies.access import acl_object, user_object

if TYPE_CHECKING:
    from cometmq.cli.cluster_access import ClusterAccess
    from cometmq.model.access import Acl, User

_server_option = click.option(
    "--server",
    "servers",
    metavar="HOST:PORT",
    multiple=True,
    help="Ask this broker or name server alone; may be repeated.  [default: all]",
)
_password_option = click.option(
    "--password-file",
    type=click.File("r"),
    help="Read the password from the first line of FILE; - is stdin.  [default: ask for it]",
)
_from_option = click.option(
    "--from",
    "source_ips",
    metavar="ADDRESS",
    multiple=True,
    help="Only from this address or network, as in 10.0.0.0/8; may be repeated.",
)


@click.group(cls=CommandGroup)
def users() -> None:
    """Make, change, list and delete users of servers that guard themselves."""


@users.command("list")
@click.argument("part", default="")
@json_option
@_server_option
@cluster_options
def list_users(access: ClusterAccess, part: str, as_json: bool, servers: tuple[str, ...]) -> None:
    """List the users whose names contain PART, by server; never passwords."""
    found: dict[str, list[User]] = access.ask(lambda admin: admin.users(part, servers=servers))
    rows = [
        {"server": addr, **user_object(user, shows_password=False)}
        for addr, each in found.items()
        for user in each
    ]
    names = {"server": "server", "username": "user", "userType": "type", "userStatus": "status"}
    _print(rows, names, as_json=as_json)


@users.command("create")
@click.argument("name")
@click.option("--super", "super_user", is_flag=True, help="A super user, who needs no policy.")
@_password_option
@_server_option
@cluster_options
def create_user(
    access: ClusterAccess, name: str, super_user: bool, password_file: Any, servers: tuple[str, ...]
) -> None:
    """Make the user NAME; the name is the access key, the password the secret key."""
    password = _password(password_file)
    changed = access.ask(
        lambda admin: admin.create_user(name, password, super_user=super_user, servers=servers)
    )
    _print_changed(name, "created", changed)


@users.command("update")
@click.argument("name")
@click.option("--super/--normal", "super_user", default=None, help="Change the type.")
@click.option("--enable/--disable", "enabled", default=None, help="Change the status.")
@click.option("--password", "new_password", is_flag=True, help="Ask for a new password.")
@_password_option
@_server_option
@cluster_options
def update_user(
    access: ClusterAccess,
    name: str,
    super_user: bool | None,
    enabled: bool | None,
    new_password: bool,
    password_file: Any,
    servers: tuple[str, ...],
) -> None:
    """Change what is named of the user NAME; the rest stays."""
    if super_user is None and enabled is None and not new_password and password_file is None:
        raise click.UsageError("name what to change: --password, --super, --normal, --disable, ...")
    password = _password(password_file) if new_password or password_file else None
    changed = access.ask(
        lambda admin: admin.update_user(
            name, password=password, super_user=super_user, enabled=enabled, servers=servers
        )
    )
    _print_changed(name, "updated", changed)


@users.command("delete")
@click.argument("name")
@_server_option
@cluster_options
def delete_user(access: ClusterAccess, name: str, servers: tuple[str, ...]) -> None:
    """Delete the user NAME with all policies."""
    changed = access.ask(lambda admin: admin.delete_user(name, servers=servers))
    _print_changed(name, "deleted", changed)


@click.group(cls=CommandGroup)
def acls() -> None:
    """Say what users may do: allow, deny, list and delete policies."""


@acls.command("list")
@click.option("--user", default="", help="Of users whose names contain this.")
@click.option("--resource", default="", help="About resources that contain this.")
@json_option
@_server_option
@cluster_options
def list_policies(
    access: ClusterAccess, user: str, resource: str, as_json: bool, servers: tuple[str, ...]
) -> None:
    """List the policies, by server and user."""
    found: dict[str, list[Acl]] = access.ask(
        lambda admin: admin.policies(user, resource, servers=servers)
    )
    rows = [
        {
            "server": addr,
            "user": acl.username,
            "type": policy["policyType"],
            "resource": entry["resource"],
            "decision": entry["decision"],
            "actions": ",".join(entry["actions"]),
            "from": ",".join(entry.get("sourceIps", ())),
        }
        for addr, each in found.items()
        for acl in each
        for policy in acl_object(acl)["policies"]
        for entry in policy["entries"]
    ]
    names = ("server", "user", "type", "resource", "decision", "actions", "from")
    _print(rows, dict(zip(names, names, strict=True)), as_json=as_json)


def _set_policy(
    access: ClusterAccess, name: str, resource: str, actions: str, *, allow: bool, **rest: Any
) -> None:
    words = [word.strip() for word in actions.split(",") if word.strip()]
    changed = access.ask(lambda admin: admin.set_policy(name, resource, words, allow=allow, **rest))
    _print_changed(f"{name}, {resource}", "allowed" if allow else "denied", changed)


@acls.command("allow")
@click.argument("name")
@click.argument("resource")
@click.argument("actions")
@_from_option
@_server_option
@cluster_options
def allow(
    access: ClusterAccess,
    name: str,
    resource: str,
    actions: str,
    source_ips: tuple[str, ...],
    servers: tuple[str, ...],
) -> None:
    """Allow the user NAME some ACTIONS, as in Pub,Sub, on a RESOURCE, as in Topic:orders*.

    It takes the place of what was said of this resource before.
    """
    _set_policy(access, name, resource, actions, allow=True, source_ips=source_ips, servers=servers)


@acls.command("deny")
@click.argument("name")
@click.argument("resource")
@click.argument("actions")
@_from_option
@_server_option
@cluster_options
def deny(
    access: ClusterAccess,
    name: str,
    resource: str,
    actions: str,
    source_ips: tuple[str, ...],
    servers: tuple[str, ...],
) -> None:
    """Deny the user NAME some ACTIONS on a RESOURCE; see allow."""
    _set_policy(
        access, name, resource, actions, allow=False, source_ips=source_ips, servers=servers
    )


@acls.command("delete")
@click.argument("name")
@click.argument("resource", required=False)
@_server_option
@cluster_options
def delete_policy(
    access: ClusterAccess, name: str, resource: str | None, servers: tuple[str, ...]
) -> None:
    """Delete what is said of a RESOURCE, or all policies of the user NAME."""
    changed = access.ask(lambda admin: admin.delete_policy(name, resource, servers=servers))
    _print_changed(name if resource is None else f"{name}, {resource}", "deleted", changed)


def _password(file: Any) -> str:
    if file is None:
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    found = str(file.readline()).rstrip("\r\n")
    if not found.strip():
        raise SettingsError("the first line of --password-file is blank: it must be the password")
    return found


def _print_changed(what: str, act: str, changed: list[str]) -> None:
    click.echo(f"{what}: {act} at {', '.join(changed)}")


def _print(rows: list[dict[str, Any]], names: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(list(names.values()), [[row[key] for key in names] for row in rows])
