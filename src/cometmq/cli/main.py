"""The `cometmq` command: its subcommands, and how errors are reported.

Imports a subcommand's file only when it is called, so `--help` is fast. Invariant: a CometError,
and what the system refuses (OSError), is one sentence on stderr and exit code 1; a usage error is
exit code 2.
Java: mqadmin, mqnamesrv, mqbroker.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import NamedTuple

import click

from cometmq import native
from cometmq.cli.command_group import CommandGroup
from cometmq.errors import CometError

VERSION_TEXT = f"%(prog)s, version %(version)s\nhot loops in {native.form().replace('%', '%%')}"
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it."""


class _Command(NamedTuple):
    module: str
    name: str
    help: str


_COMMANDS = {
    "standalone": _Command(
        "serve_commands", "standalone", "Name server and broker in one process."
    ),
    "namesrv": _Command("serve_commands", "namesrv", "A name server."),
    "broker": _Command("serve_commands", "broker", "A broker."),
    "topic": _Command("topic_commands", "topic", "Look at topics, change, send and read them."),
    "group": _Command("group_commands", "group", "Look at consumer groups and move them."),
    "message": _Command("message_commands", "message", "Find single messages."),
    "dlq": _Command("dlq_commands", "dlq", "Look at dead letters, send them again."),
    "parked": _Command("parked_commands", "parked", "Look at parked keys, release them."),
    "cluster": _Command("cluster_command", "cluster", "What a cluster is made of."),
    "brokers": _Command("brokers_commands", "brokers", "Look at running brokers, change them."),
    "nameservers": _Command("nameserver_commands", "nameservers", "Settings of name servers."),
    "producers": _Command("producers_command", "producers", "Who is connected as a producer."),
    "offsets": _Command("offset_commands", "offsets", "Save the offsets of groups, restore them."),
    "users": _Command("access_commands", "users", "Users of servers that guard themselves."),
    "acls": _Command("access_commands", "acls", "What users may do."),
    "doctor": _Command("doctor_command", "doctor", "Say what is wrong with a cluster."),
    "health": _Command("health_command", "health", "Ask a running role whether it is ready."),
    "why": _Command("why_command", "why", "Say why a group is not faster, and what would help."),
    "store": _Command("store_commands", "store", "Verify and dump a stopped store."),
    "pipeline": _Command("pipeline_commands", "pipeline", "Keep tables of topics with Spark."),
    "demo": _Command("demo_commands", "demo", "Run a demonstration on real data."),
}


class LazyCommandGroup(CommandGroup):
    """A group that lists its commands by name and imports one when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands that this installation has."""
        return [name for name, command in _COMMANDS.items() if _is_there(command)]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of that name."""
        command = _COMMANDS.get(cmd_name)
        if command is None or not _is_there(command):
            return None
        loaded = getattr(importlib.import_module(_module(command)), command.name)
        assert isinstance(loaded, click.Command), cmd_name
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading them."""
        rows = [(name, _COMMANDS[name].help) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cometmq", message=VERSION_TEXT)
def cli() -> None:
    """RocketMQ's broker, name server and client, and Spark's way to them, in Python."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; the entry of tests."""
    try:
        code = cli.main(arguments, prog_name="cometmq", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CometError as error:
        click.echo(f"cometmq: {error}", err=True)
        return 1
    except BrokenPipeError:
        # The reader of our output is gone; the interpreter must not flush into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        click.echo(f"cometmq: {error}", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _is_there(command: _Command) -> bool:
    return importlib.util.find_spec(_module(command)) is not None


def _module(command: _Command) -> str:
    return f"cometmq.cli.{command.module}"


if __name__ == "__main__":
    main()
