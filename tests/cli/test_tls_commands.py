"""Servers and commands with TLS, as a user starts them: settings, files, and what clients see."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from broker.sockets import two_ports
from cli.shell import serving
from cometmq import LitePullConsumer, Message, Producer
from cometmq.cli.main import run
from cometmq.errors import ConnectFailed, RemotingError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode
from net.certificates import PASSWORD, certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.shell import RunningServer

FOUND = certificates()
TRUSTING = ("--tls", f"--tls-ca-file={FOUND.ours.cert}")
AS_CLIENT = (
    *TRUSTING, f"--tls-cert-file={FOUND.client[0]}", f"--tls-key-file={FOUND.client[1]}"
)  # fmt: skip
SERVER = f"""
tls.server.certPath = {FOUND.encrypted[0]}
tls.server.keyPath = {FOUND.encrypted[1]}
tls.server.keyPassword = {PASSWORD}
"""
MUTUAL = f"""
tls.server.need.client.auth = require
tls.server.authClient = true
tls.server.trustCertPath = {FOUND.ours.cert}
tls.client.trustCertPath = {FOUND.ours.cert}
tls.client.certPath = {FOUND.client[0]}
tls.client.keyPath = {FOUND.client[1]}
"""


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cometmq(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process; its exit code, and what it says."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        return code, *capsys.readouterr()

    return command


def sentence(done: tuple[int, str, str]) -> str:
    """The one line of a command that has failed."""
    code, _, said = done
    assert (code, said.count("\n")) == (1, 1), said
    return said


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Name server and broker in one process, with TLS only, settings of TLS in their own file."""
    place = tmp_path_factory.mktemp("enforcing")
    (place / "tls.properties").write_text(SERVER)
    (place / "broker.conf").write_text(
        f"tls.server.mode = enforcing\ntls.config.file = {place}/tls.properties\n"
    )
    with serving(
        place, "standalone", "-c", f"{place}/broker.conf", "--store", f"{place}/store",
        "--namesrv-port=0", "--broker-port=0",
    ) as server:  # fmt: skip
        yield server


def test_the_broker_registers_and_commands_and_clients_find_it(
    enforcing: RunningServer, cometmq: Command
) -> None:
    namesrv = enforcing.facts["namesrv"]
    made = cometmq("topic", "create", "guarded", "-n", namesrv, *TRUSTING)
    assert made == (0, "guarded: 8 queues\n", "")
    tls = FOUND.ours.client()
    with Producer("group", namesrv=namesrv, tls=tls) as producer:
        sent = [producer.send(Message("guarded", b"x" * 200_000)) for _ in range(8)]
    with LitePullConsumer("readers", namesrv=namesrv, tls=tls) as consumer:
        queues = consumer.fetch_message_queues("guarded")
        got = [message for queue in queues for message in consumer.pull(queue).messages]
    assert [len(message.body) for message in got] == [200_000] * len(sent)


def test_the_doctor_sees_nothing_wrong_with_tls_and_says_what_is_wrong_without(
    enforcing: RunningServer, cometmq: Command
) -> None:
    namesrv = enforcing.facts["namesrv"]
    _, well, _ = cometmq("doctor", "-n", namesrv, *TRUSTING)
    assert "broker" in well
    assert "FAULT" not in well, well
    code, ill, _ = cometmq("doctor", "-n", namesrv)
    assert (code, "FAULT" in ill) == (1, True)


def test_commands_without_tls_or_without_trust_are_one_sentence(
    enforcing: RunningServer, cometmq: Command
) -> None:
    namesrv = enforcing.facts["namesrv"]
    assert namesrv in sentence(cometmq("topic", "list", "-n", namesrv))
    said = sentence(cometmq("topic", "list", "-n", namesrv, "--tls"))
    assert f"the certificate of {namesrv} is refused" in said
    only = sentence(cometmq("topic", "list", "-n", namesrv, f"--tls-ca-file={FOUND.ours.cert}"))
    assert "no effect" in only


def _asked(addr: str, *options: str) -> str:
    host, port = addr.rsplit(":", 1)
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{host}:{port}", *options],
        input="", capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("version", "spoken"), [("tls1_3", "TLSv1.3"), ("tls1_2", "TLSv1.2"), ("tls1_1", "")]
)
def test_openssl_agrees_on_versions(enforcing: RunningServer, version: str, spoken: str) -> None:
    seclevel = ("-cipher", "ALL:@SECLEVEL=0") if not spoken else ()
    said = _asked(
        enforcing.facts["broker"], f"-{version}", "-CAfile", str(FOUND.ours.cert), *seclevel
    )
    cipher = re.search(r"^New, (\S+), Cipher is (\S+)$", said, re.MULTILINE)
    assert cipher is not None, said
    assert (cipher[1] if spoken else cipher[2]) == (spoken or "(NONE)")
    assert ("Verify return code: 0 (ok)" in said) or not spoken, said


def test_broker_and_name_server_apart_show_each_other_certificates(
    tmp_path: Path, cometmq: Command
) -> None:
    conf = tmp_path / "tls.conf"
    conf.write_text(f"tls.server.mode = enforcing\n{SERVER}{MUTUAL}")
    kept = f"kvConfigPath={tmp_path}/kv.json"
    below, listen = two_ports()
    with (
        serving(tmp_path, "namesrv", "-p0", "-c", str(conf), "--set", kept) as names,
        serving(
            tmp_path, "broker", "-n", names.facts["namesrv"], f"-p{listen}", "-c", str(conf),
            "--store", f"{tmp_path}/store", "--set", "brokerName=b0",
        ) as broker,
    ):  # fmt: skip
        namesrv = names.facts["namesrv"]
        made = cometmq("topic", "create", "mutual", "-n", namesrv, *AS_CLIENT)
        assert made == (0, "mutual: 8 queues\n", "")
        assert cometmq("topic", "create", "other", "-n", namesrv, *TRUSTING)[0] == 1
        said = _asked(
            broker.facts["broker"], "-CAfile", str(FOUND.ours.cert),
            "-cert", str(FOUND.client[0]), "-key", str(FOUND.client[1]),
        )  # fmt: skip
        assert "CN = ours" in said or "CN=ours" in said  # whose certificates the server asks for
        second = f"127.0.0.1:{below}"
        with pytest.raises(RemotingError):
            BlockingChannel(second).call(RequestCode.GET_BROKER_CONFIG)
        with pytest.raises((ConnectFailed, RemotingError)):
            BlockingChannel(second, tls=FOUND.ours.client()).call(RequestCode.GET_BROKER_CONFIG)
        with BlockingChannel(second, tls=FOUND.ours.client(*FOUND.client)) as channel:
            answer = channel.call(RequestCode.GET_BROKER_CONFIG)
        assert answer.code == 0
        assert PASSWORD not in answer.body.decode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tls.server.mode = enforcing", "tls.server.mode is 'enforcing'; it must be disabled or"),
        ("tls.server.certPath = gone.pem", "tls.server.certPath: gone.pem cannot be used (No such"),
        ("tls.config.file = gone.properties", "cannot read gone.properties: No such file"),
    ],
)
def test_a_server_that_cannot_do_what_its_settings_say_does_not_start(
    tmp_path: Path, cometmq: Command, line: str, said: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(line)
    for role in ("namesrv", "broker"):
        assert said in sentence(cometmq(role, "-p0", "-c", str(conf)))


def test_a_file_of_tls_has_only_keys_of_tls(tmp_path: Path, cometmq: Command) -> None:
    (tmp_path / "tls.properties").write_text("listenPort=1")
    done = cometmq("namesrv", "--set", f"tls.config.file={tmp_path}/tls.properties")
    assert "tls.properties:1: listenPort is no setting of TLS (tls.config.file)" in sentence(done)
