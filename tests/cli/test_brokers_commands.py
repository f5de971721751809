"""The commands about clusters, brokers, name servers, producers and topics' traffic."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.shell import COMMAND
from client.short_delay_cluster import until
from cometmq import Message, Producer

if TYPE_CHECKING:
    from cli.in_process import Commands
    from cometmq.testing.cluster import LocalCluster


@pytest.fixture
def broker(cometmq: Commands) -> str:
    (row,) = cometmq("brokers", "list", "--json").json
    return str(row["broker"])


def test_a_cluster_and_its_brokers_are_shown(
    cometmq: Commands, running_cluster: LocalCluster, broker: str
) -> None:
    found = cometmq("cluster", "--json").json
    (row,) = found["brokers"]
    assert (row["cluster"], row["broker_id"], row["addr"], row["problem"]) == (
        "DefaultCluster", 0, running_cluster.broker, None,
    )  # fmt: skip
    assert cometmq("brokers", "list", "--json").json[0].keys() == row.keys()
    head, line = cometmq("brokers", "list").rows
    assert (head[0], line[1], line[-1]) == ("cluster", broker, "answers")
    assert cometmq("cluster").out.splitlines()[-1].endswith(" groups")
    for name in (broker, running_cluster.broker):
        assert "brokerActive=true" in cometmq("brokers", "status", name).out.splitlines()
    assert cometmq("brokers", "status", broker, "--json").json["brokerActive"] == "true"
    done = cometmq("brokers", "status", "elsewhere")
    assert (done.code, f"there are: {broker}" in done.err) == (1, True)


def test_settings_are_read_and_changed(cometmq: Commands, broker: str) -> None:
    key = "maxTransferCountOnMessageInMemory"
    was = cometmq("brokers", "config", "get", broker, key, "--json").json[key]
    changed = cometmq("brokers", "config", "set", broker, f"{key}=31")
    assert changed.out.startswith(f"{broker}: changed {key}\nkept until the broker stops")
    assert cometmq("brokers", "config", "get", broker, key).out == f"{key}=31\n"
    assert cometmq("brokers", "config", "set", broker, f"{key}={was}").code == 0
    missing = cometmq("brokers", "config", "get", broker, "fileReservedTim")
    assert "did you mean fileReservedTime?" in missing.err
    assert cometmq("brokers", "config", "set", broker, "x").code == 2
    refused = cometmq("brokers", "config", "set", broker, "flushDiskTyp=x")
    assert (refused.code, "flushDiskTyp" in refused.err) == (1, True)
    own = cometmq("nameservers", "config", "get", "orderMessageEnable", "--json").json
    assert own == {cometmq.namesrv: {"orderMessageEnable": "false"}}
    assert cometmq("nameservers", "config", "set", "orderMessageEnable=false").code == 0
    assert f"# {cometmq.namesrv}" in cometmq("nameservers", "config", "get").out


def test_a_broker_is_taken_out_of_writing_and_back(cometmq: Commands, broker: str) -> None:
    cometmq("topic", "create", "wiped", "--queues", "1")
    for command, perm in (("wipe-write", "r"), ("restore-write", "rw")):
        assert f"{broker}: " in cometmq("brokers", command, broker).out
        route = cometmq("topic", "route", "wiped", "--json").json
        assert [one["perm"] for one in route["brokers"]] == [perm]
        assert cometmq("topic", "route", "wiped").rows[1][-1] == perm


def test_topics_and_groups_are_written_as_json(cometmq: Commands, broker: str) -> None:
    cometmq("topic", "create", "kept", "--queues", "3")
    cometmq("group", "create", "keepers")
    found = cometmq("brokers", "metadata").json[broker]
    assert found["topics"]["kept"]["read_queue_nums"] == 3
    assert "keepers" in found["groups"]


def test_producers_and_the_traffic_of_topics_are_shown(cometmq: Commands) -> None:
    cometmq("topic", "create", "busy", "--queues", "2")
    with Producer("busy-clerk", namesrv=cometmq.namesrv) as producer:
        producer.send(Message("busy", b"x"))
        until(lambda: cometmq("producers", "busy-clerk").code == 0)
        assert cometmq("producers", "busy-clerk", "--json").json[0]["language"] == "PYTHON"
        done = cometmq("producers", "busy-clark")
        assert "did you mean busy-clerk?" in done.err
    assert cometmq("topic", "stats", "busy").rows[1][0] == "busy"
    assert cometmq("topic", "stats", "busy", "--json").json[0]["out"] == {}
    shares = cometmq("topic", "allocate", "busy", "a", "b", "c", "--json").json
    assert [len(each) for each in shares.values()] == [1, 1, 0]
    assert cometmq("topic", "allocate", "busy", "a").rows[1][:2] == ["a", "2"]


def test_a_topic_is_deleted_when_that_is_confirmed(cometmq: Commands) -> None:
    cometmq("topic", "create", "dropped", "--queues", "1")
    cometmq("topic", "send", "dropped", "x")
    refused = cometmq("topic", "delete", "dropped")
    assert (refused.code, "with its 1 messages?" in refused.err) == (2, True)
    assert cometmq("topic", "delete", "dropped", "--yes").code == 0
    assert "dropped" not in cometmq("topic", "list", "--json").json


def test_a_topic_is_shown_as_json(cometmq: Commands) -> None:
    cometmq("topic", "create", "shown", "--queues", "1")
    cometmq("topic", "send", "shown", "x")
    found = cometmq("topic", "status", "shown", "--json").json
    (queue,) = found["queues"]
    assert (found["messages"], queue["first_offset"], queue["end_offset"]) == (1, 0, 1)


def test_the_module_is_the_command(namesrv: str) -> None:
    command = [sys.executable, "-m", "cometmq", "group", "list", "-n", namesrv]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_shell_completes_commands() -> None:
    asked = {
        "_COMETMQ_COMPLETE": "bash_complete",
        "COMP_WORDS": "cometmq group re",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,reset\n"
