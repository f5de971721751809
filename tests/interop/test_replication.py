"""Our slave behind Apache's master and Apache's behind ours: sends wait for it, logs are equal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from client.short_delay_cluster import until
from cometmq import Message, Producer, SendStatus
from cometmq.errors import CometError
from cometmq.testing.cluster import ServerProcess
from cometmq.wire.records import log_record as stored
from interop.apache import ApacheCluster, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, COUNT, LOG_FILE = "Copied", 150, 256 * 1024
COMMON: dict[str, object] = {
    "brokerName": "pair",
    "mappedFileSizeCommitLog": LOG_FILE,
    "inSyncReplicas": 2,
    "slaveTimeout": 30_000,
    "haSendHeartbeatInterval": 1_000,
    "registerNameServerPeriod": 10_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}
MASTER: dict[str, object] = {"brokerRole": "SYNC_MASTER", "brokerId": 0}
SLAVE: dict[str, object] = {"brokerRole": "SLAVE", "brokerId": 1}


@pytest.fixture
def namesrv(apache_jars: Path, tmp_path: Path) -> Iterator[str]:
    names = ApacheCluster(apache_jars, tmp_path / "names", broker=False)
    yield names.namesrv
    names.stop()


@contextlib.contextmanager
def ours(namesrv: str, store: Path, **role: object) -> Iterator[str]:
    """Our broker, and where its slaves connect to."""
    port = free_port()
    settings = {**COMMON, **role, "haListenPort": port + 1}
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    process = ServerProcess(["broker", f"-n{namesrv}", f"-p{port}", f"--store={store}", *sets])
    try:
        yield f"127.0.0.1:{port + 1}"
    finally:
        said = process.stderr
        process.stop()
        assert "Traceback" not in said, said


@contextlib.contextmanager
def theirs(jars: Path, namesrv: str, home: Path, **role: object) -> Iterator[str]:
    """Apache's broker, and where its slaves connect to."""
    port = free_port()
    settings = {**COMMON, **role, "listenPort": port, "haListenPort": port + 1}
    cluster = ApacheCluster(jars, home, namesrv=namesrv, **settings)
    try:
        yield f"127.0.0.1:{port + 1}"
    finally:
        cluster.stop()


def send(namesrv: str, name: str) -> None:
    """Every send is answered OK, so a slave has all of it."""
    with Producer("pair", namesrv=namesrv) as producer:
        until(lambda: is_writable(producer, name), 60)
        for n in range(COUNT):
            message = Message(TOPIC, f"{name} {n}".encode() * 40, keys=f"{name}-{n}")
            result = producer.send(message, timeout_s=40.0)
            assert result.status is SendStatus.SEND_OK, result


def is_writable(producer: Producer, name: str) -> bool:
    with contextlib.suppress(CometError):
        message = Message(TOPIC, f"{name} first".encode())
        return producer.send(message).status is SendStatus.SEND_OK
    return False


def log_of(store: Path) -> dict[int, bytes]:
    """The bytes of each file of a log; Apache makes the next file before it needs it."""
    found = {int(file.name): file.read_bytes() for file in (store / "commitlog").iterdir()}
    return {base: data for base, data in found.items() if data.strip(b"\0")}


def assert_equal_from_the_slaves_first_file(master: Path, slave: Path) -> int:
    """Byte for byte; returns how many files both have."""
    all_of, copy = log_of(master), log_of(slave)
    shared = sorted(base for base in copy if base in all_of)
    assert shared == [base for base in sorted(all_of) if base >= min(copy)]
    for base in shared:
        mine = copy[base].rstrip(b"\0")
        assert mine == all_of[base].rstrip(b"\0"), base
        assert mine, base
    return len(shared)


def bodies(store: Path) -> set[bytes]:
    """The bodies of the topic in a stopped store's log."""
    found = set()
    for data in log_of(store).values():
        at = 0
        while at + 8 <= len(data):
            size, magic = stored.BLANK.unpack_from(data, at)
            if magic not in (stored.MAGIC_V1, stored.MAGIC_V2):
                break
            record = stored.decode(data, at)
            if record.topic == TOPIC:
                found.add(record.body)
            at += size
    return found


def wanted(*names: str) -> set[bytes]:
    return {f"{name} {n}".encode() * 40 for name in names for n in range(COUNT)}


def test_a_pair_changes_roles_over_one_history(
    apache_jars: Path, namesrv: str, tmp_path: Path
) -> None:
    mine, home = tmp_path / "ours", tmp_path / "apache"
    with (
        theirs(apache_jars, namesrv, home, **MASTER) as ha,
        ours(namesrv, mine, **SLAVE, haMasterAddress=ha),
    ):
        send(namesrv, "apache leads")
    assert_equal_from_the_slaves_first_file(home / "store", mine)
    # Apache's slave connects to the address that its name server gives it
    with ours(namesrv, mine, **MASTER), theirs(apache_jars, namesrv, home, **SLAVE):
        send(namesrv, "ours leads")
    assert_equal_from_the_slaves_first_file(mine, home / "store")
    with (
        theirs(apache_jars, namesrv, home, **MASTER) as ha,
        ours(namesrv, mine, **SLAVE, haMasterAddress=ha),
    ):
        send(namesrv, "apache again")
    assert_equal_from_the_slaves_first_file(home / "store", mine)
    assert wanted("apache leads", "ours leads", "apache again") <= bodies(mine)
