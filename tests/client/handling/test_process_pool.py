"""Handlers in processes: errors come back, a death is a retry, Ctrl-C stops all in order."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.short_delay_cluster import until
from cometmq import ClientError, Message, Middleware, Producer, PushConsumer

SCRIPT = """
import json, os, sys
from cometmq import PushConsumer

def handle(messages):
    for message in messages:
        with open(sys.argv[1], "a") as seen:
            entry = [os.getpid(), message.sharding_key, message.body.decode()]
            seen.write(json.dumps(entry) + "\\n")
        if message.body == b"die" and message.queue_offset >= 0:
            if not os.path.exists(sys.argv[1] + ".died"):
                open(sys.argv[1] + ".died", "w").close()
                os._exit(3)
        if message.body == b"bad":
            raise ValueError("no such thing")

if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    consumer = PushConsumer("workers-" + settings.pop("name"), workers="process",
                            consume_from="first", consume_threads=2, **settings)
    consumer.subscribe(sys.argv[3], "*", handle)
    with consumer:
        print("ready", flush=True)
        consumer.wait()
    print("over", flush=True)
"""


class Program:
    """A script that consumes with processes, and what its handlers have seen."""

    def __init__(self, cluster, topic, root, **settings):
        (root / "script.py").write_text(SCRIPT)
        self.seen_path = root / "seen"
        settings |= {"namesrv": cluster.namesrv, "name": topic, "state_dir": str(root / "state")}
        arguments = [str(self.seen_path), json.dumps(settings), topic]
        self.process = subprocess.Popen(
            [sys.executable, str(root / "script.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def seen(self):
        if not self.seen_path.exists():
            return []
        return [json.loads(line) for line in self.seen_path.read_text().splitlines()]

    def signal_all(self, number):
        """Ctrl-C, as a terminal sends it, or SIGTERM, as systemd does: to all processes."""
        os.killpg(self.process.pid, number)
        return self.process.communicate(timeout=30)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def program(cluster, make_topic, tmp_path):
    made = []

    def start(*bodies, **settings):
        topic = make_topic(cluster, 1)
        with Producer("senders", namesrv=cluster.namesrv) as producer:
            for body in bodies:
                producer.send(Message(topic, body.encode(), sharding_key=body[:1]))
        made.append(Program(cluster, topic, tmp_path, **settings))
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_handlers_run_in_other_processes_and_a_signal_ends_them_all_in_order(program, number):
    running = program(*(f"{key}{step}" for step in range(10) for key in "abcd"), order="key")
    until(lambda: len(running.seen()) == 40)
    out, err = running.signal_all(number)
    assert out.split() == ["ready", "over"], err
    assert running.process.returncode == 0
    assert "Traceback" not in err
    pids = {pid for pid, _, _ in running.seen()}
    assert 1 <= len(pids) <= 2
    assert running.process.pid not in pids
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    for key in "abcd":
        own = [body for _, of, body in running.seen() if of == key]
        assert own == [f"{key}{step}" for step in range(10)]


def test_a_worker_that_dies_costs_one_attempt_and_another_takes_its_place(program):
    running = program("die", "a1", "b1", order="key", suspend_ms=50)
    until(lambda: [body for _, _, body in running.seen()].count("die") == 2)
    until(lambda: len(running.seen()) == 4)
    _, err = running.signal_all(signal.SIGINT)
    assert "worker process" in err


def test_an_error_comes_back_with_its_type(program):
    running = program("bad", "b1", max_attempts=1)
    until(lambda: len(running.seen()) == 2)
    _, err = running.signal_all(signal.SIGINT)
    assert "ValueError: no such thing" in err
    assert "RemoteTraceback" in err


def test_a_handler_that_cannot_be_sent_to_a_process_is_refused_at_the_start(cluster):
    consumer = PushConsumer("g", namesrv=cluster.namesrv, workers="process")
    consumer.subscribe("anything", "*", lambda messages: None)
    with pytest.raises(ClientError, match="cannot be sent to a process"):
        consumer.start()


def test_an_async_handler_is_refused(cluster):
    async def handle(messages):
        """Runs nowhere."""

    consumer = PushConsumer("g", namesrv=cluster.namesrv, workers="process")
    with pytest.raises(ClientError, match="async"):
        consumer.subscribe("anything", "*", handle)


def fails_in_its_process(messages):
    """A handler of a module, as processes need it."""
    if messages[0].body == b"bad":
        raise ValueError(f"in process {os.getpid()}")


def test_the_hooks_of_a_middleware_run_in_the_parent(cluster, topic, group):
    log = []

    class Notes(Middleware):
        def before_handle(self, messages, context):
            log.append(("before", messages[0].body, os.getpid()))

        def after_handle(self, messages, context, status):
            log.append(("after", messages[0].body, os.getpid()))

        def handle_failed(self, messages, context, error):
            log.append(("failed", str(error).partition(" ")[0], os.getpid()))

    consumer = PushConsumer(
        group, namesrv=cluster.namesrv, consume_from="first", workers="process", consume_threads=1,
        middleware=[Notes()], max_attempts=1,
    )  # fmt: skip
    consumer.subscribe(topic, "*", fails_in_its_process)
    with Producer("g", namesrv=cluster.namesrv) as producer, consumer:
        for body in (b"good", b"bad"):
            producer.send(Message(topic, body), queue=producer.queues(topic)[0])
            until(lambda wanted=2 * (1 + (body == b"bad")): len(log) >= wanted)
    assert log == [
        ("before", b"good", os.getpid()),
        ("after", b"good", os.getpid()),
        ("before", b"bad", os.getpid()),
        ("failed", "in", os.getpid()),
    ]
