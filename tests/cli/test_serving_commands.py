"""standalone, namesrv and broker, run as a user runs them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli.shell import BOUND_S, COMMAND, cometmq, sentence, serving
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from pathlib import Path

FREE = ("--namesrv-port=0", "--broker-port=0")


def knows_route(namesrv: str, topic: str) -> bool:
    with BlockingChannel(namesrv) as channel:
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = channel.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return answer.code == ResponseCode.SUCCESS


def test_standalone_says_where_it_listens_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, "standalone", "--store", str(store), *FREE) as server:
        facts = server.facts
        assert set(facts) >= {"namesrv", "broker", "store", "pid"}
        assert facts["store"] == str(store)
        assert facts["pid"] == server.process.pid
        assert facts["namesrv"].startswith("127.0.0.1:")
        assert knows_route(facts["namesrv"], "TBW102")
        BlockingChannel(facts["broker"]).close()
        server.process.send_signal(signal.SIGTERM)
        stdout, stderr = server.process.communicate(timeout=BOUND_S)
        assert server.process.returncode == 0
        assert facts["namesrv"] in stdout
        assert facts["broker"] in stdout
        assert stderr == ""
        assert not server.ready.exists()
    assert not (store / "abort").exists()


def test_ctrl_c_ends_cleanly_too(tmp_path: Path) -> None:
    with serving(tmp_path, "standalone", "--store", str(tmp_path / "s"), *FREE) as server:
        assert server.end(signal.SIGINT) == (0, "")


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, signal\n"
        "from cometmq.cli.role_runner import serve\n"
        "class Stubborn:\n"
        "    async def start(self): pass\n"
        "    async def stop(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        await asyncio.sleep(60)\n"
        "async def begin(running):\n"
        "    await running.start(Stubborn())\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "serve(begin)\n"
    )
    python = COMMAND.removesuffix("cometmq") + "python"
    done = subprocess.run([python, "-c", script], timeout=BOUND_S, check=False)
    assert done.returncode == 130


def test_a_signal_while_starting_stops_what_has_started() -> None:
    script = (
        "import asyncio, os, signal\n"
        "from cometmq.cli.role_runner import serve\n"
        "class Role:\n"
        "    async def start(self): print('started')\n"
        "    async def stop(self): print('stopped')\n"
        "async def begin(running):\n"
        "    await running.start(Role())\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.sleep(60)\n"
        "    print('never')\n"
        "serve(begin)\n"
    )
    python = COMMAND.removesuffix("cometmq") + "python"
    done = subprocess.run(
        [python, "-c", script], timeout=BOUND_S, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "started\nstopped\n")


def test_the_roles_run_apart_and_find_each_other(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName = blue\nlistenPort = 0\nautoCreateTopicEnable = true\n")
    with serving(tmp_path, "namesrv", "-p0") as names:
        address = names.facts["namesrv"]
        store = str(tmp_path / "s")
        with serving(
            tmp_path, "broker", "-c", str(conf), "--store", store, NAMESRV_ADDR=address
        ) as broker:
            assert broker.facts["namesrv"] == address
            assert knows_route(address, "blue")
            assert broker.end(signal.SIGTERM)[0] == 0
        assert not knows_route(address, "blue")
        assert names.end(signal.SIGTERM) == (0, "")


def test_a_killed_broker_starts_again_on_its_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, "standalone", "--store", str(store), *FREE) as server:
        server.process.kill()
        server.process.wait()
        assert server.ready.exists()
        (server.ready).rename(tmp_path / "stale.json")
    stale = tmp_path / "stale.json"
    arguments = ("standalone", "--store", str(store), *FREE)
    with serving(tmp_path, *arguments) as again:
        assert again.end(signal.SIGTERM)[0] == 0
    assert stale.exists()


def test_a_stale_ready_file_is_removed_before_anything_starts(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("old")
    done = cometmq(
        "standalone", f"--store={tmp_path}/s", "--host=192.0.2.1", f"--ready-file={ready}"
    )
    assert "cannot listen on 192.0.2.1" in sentence(done)
    assert not ready.exists()


def test_nothing_listens_beyond_this_machine_unless_asked(tmp_path: Path) -> None:
    with serving(tmp_path, "standalone", "--store", str(tmp_path / "s"), *FREE) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            outside = probe.getsockname()[0]
        if outside.startswith("127."):
            pytest.skip("this machine has no address but loopback")
        port = int(server.facts["broker"].rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((outside, port), timeout=5)


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]:"), ("0.0.0.0", ""), ("::", "")])
def test_another_host_is_listened_on_and_printed(tmp_path: Path, host: str, shown: str) -> None:
    try:
        with socket.create_server((host, 0), family=_family(host)):
            pass
    except OSError:
        pytest.skip(f"this machine cannot listen on {host}")
    store = str(tmp_path / "s")
    with serving(tmp_path, "standalone", "--store", store, "--host", host, *FREE) as server:
        assert server.facts["broker"].startswith(shown)
        assert "0.0.0.0" not in server.facts["broker"]
        assert knows_route(server.facts["namesrv"], "TBW102")
        BlockingChannel(server.facts["broker"]).close()
        assert server.end(signal.SIGTERM)[0] == 0


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def test_a_port_in_use_is_a_one_sentence_error_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for which in (
            ("--namesrv-port=0", f"--broker-port={port}"),
            (
                f"--namesrv-port={port}",
                "--broker-port=0",
            ),
        ):
            done = cometmq("standalone", f"--store={tmp_path}/s", *which)
            assert sentence(done).startswith(f"127.0.0.1:{port} is in use")
            assert not (tmp_path / "s").exists(), "a refused start leaves the disk alone"


def test_a_store_held_by_another_broker_is_a_one_sentence_error(tmp_path: Path) -> None:
    store = f"--store={tmp_path}/s"
    with serving(tmp_path, "standalone", store, *FREE) as server:
        done = cometmq("standalone", store, *FREE)
        assert "in use by another broker" in sentence(done)
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_directory_without_a_store_is_a_one_line_error_and_is_not_changed(tmp_path: Path) -> None:
    place = tmp_path / "photos"
    place.mkdir()
    (place / "cat.jpg").write_bytes(b"cat")
    done = cometmq("standalone", f"--store={place}", *FREE)
    assert f"{place} is no store" in sentence(done)
    assert [entry.name for entry in place.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("command", ["standalone", "broker", "namesrv"])
def test_the_error_names_the_wrong_setting_of_a_file(tmp_path: Path, command: str) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text("# hello\nlistenPrt = 1\n")
    said = sentence(cometmq(command, "-c", str(conf)))
    assert said == f"{conf}:2: unknown setting listenPrt; did you mean listenPort?"


def test_other_wrong_settings_are_one_sentence_errors(tmp_path: Path) -> None:
    missing = tmp_path / "none.conf"
    assert sentence(cometmq("broker", "-c", str(missing))).startswith(f"cannot read {missing}")
    assert "--set flush: write KEY=VALUE" in sentence(cometmq("broker", "--set", "flush"))
    assert "brokerId is 'x'" in sentence(cometmq("broker", COMETMQ_BROKER_ID="x"))
    assert "did you mean COMETMQ_BROKER_ID" in sentence(cometmq("broker", COMETMQ_BROKRID="1"))
    done = cometmq("namesrv", "-p0", "--ready-file", str(tmp_path / "no" / "ready.json"))
    assert f"{tmp_path / 'no'} is no directory" in sentence(done)


def test_precedence_and_which_setting_goes_where_in_standalone(tmp_path: Path) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text(
        "brokerName=from-file\nscanNotActiveBrokerInterval=50\nflushDelayOffsetInterval=7\n"
    )
    arguments = ["standalone", f"--store={tmp_path}/s", *FREE, "-c", str(conf)]
    with serving(tmp_path, *arguments, COMETMQ_BROKER_NAME="from-env") as server:
        assert server.facts["name"] == "from-env in DefaultCluster"
        with BlockingChannel(server.facts["namesrv"]) as channel:
            answer = channel.call(RequestCode.GET_NAMESRV_CONFIG)
            assert b"scanNotActiveBrokerInterval=50\n" in answer.body
    arguments += ["--set", "brokerName=from-line"]
    with serving(tmp_path, *arguments, COMETMQ_BROKER_NAME="from-env") as server:
        assert server.facts["name"] == "from-line in DefaultCluster"


def test_a_setting_without_effect_is_a_warning_and_it_starts(tmp_path: Path) -> None:
    with serving(tmp_path, "namesrv", "-p0", "--set", "serverWorkerThreads=8") as server:
        code, stderr = server.end(signal.SIGTERM)
    assert code == 0
    assert "serverWorkerThreads has no effect here: one event loop" in stderr


def test_it_stops_when_its_parent_process_is_gone(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [COMMAND, "namesrv", "-p0", f"--ready-file={ready}", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        while not ready.exists():
            assert process.poll() is None
            os.sched_yield()
        process.stdin.close()
        assert process.wait(BOUND_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_ready_file_that_cannot_be_made_fails_before_anything_starts(
    tmp_path: Path,
) -> None:
    store, ready = tmp_path / "store", tmp_path / "no" / "ready.json"
    done = cometmq("standalone", f"--store={store}", *FREE, f"--ready-file={ready}")
    assert sentence(done) == f"--ready-file {ready}: {ready.parent} is no directory"
    assert not store.exists()
