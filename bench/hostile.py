"""A neighbour beside hostile clients: its round trips, and the server's memory, under each attack.

    python bench/hostile.py                  each attack for five seconds
    python bench/hostile.py --only held      the attacks whose name contains the text
    python bench/hostile.py --save hostile   also writes bench/results/hostile.txt

One process of `cometmq standalone` (name server and broker share a loop), one attacker in a process
of its own, and here the neighbour: it asks for a route, sends a message and pulls it, each 2 ms.
The table has what these three took together, and the largest memory of the server in the attack.

On a machine of two cores these three processes also wait for a core. `busy core` is what that alone
costs: its "attacker" computes and sends nothing. `p99 run` leaves out of each trip the time in
which the server or the neighbour could have run and had no core, as the kernel counts it
(/proc/PID/schedstat): what the server itself costs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from itertools import count
from pathlib import Path

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import CreateTopicRequestHeader
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.records import message_batch, properties
from cometmq.wire.records.message_batch import BatchItem
from servers import save

TOPIC = "Hostile"
numbers = count(1)


def dial(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 10)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def send_header(topic: str, **more: object) -> SendMessageRequestHeaderV2:
    fields = {
        "producer_group": "P",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 8,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
        "properties": properties.encode({"UNIQ_KEY": "U"}).decode(),
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
    }
    return SendMessageRequestHeaderV2(**{**fields, **more})


def pull_header(topic: str, **more: object) -> PullMessageRequestHeader:
    fields = {
        "consumer_group": "G",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_ms": 0,
        "subscription": "*",
        "sub_version": 0,
        "expression_type": "TAG",
    }
    return PullMessageRequestHeader(**{**fields, **more})


def ask(link: socket.socket, code: int, header: object = None, body: bytes = b"") -> None:
    """Send a request and read until its answer has come whole."""
    link.sendall(request(code, next(numbers), header, body).encode())
    size = int.from_bytes(read(link, 4), "big")
    while size:
        size -= len(read(link, min(size, 1 << 20)))


def read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def new_topic(link: socket.socket, topic: str, queues: int) -> None:
    shape = CreateTopicRequestHeader(
        topic=topic, default_topic="", read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC, shape)


def calm(_broker: int, _namesrv: int, until: float) -> None:
    """Nobody attacks."""
    time.sleep(until - time.monotonic())


def busy_core(_broker: int, _namesrv: int, until: float) -> None:
    """Computes, as every attacker does beside it, and sends nothing."""
    while time.monotonic() < until:
        sum(range(1_000))


def unfinished_frames(broker: int, _namesrv: int, until: float) -> None:
    """150 connections with 15.9 MiB of a frame each, then a byte now and then."""
    frame = request(RequestCode.SEND_MESSAGE_V2, 1, send_header(TOPIC), bytes(16_600_000)).encode()
    links = [dial(broker) for _ in range(150)]
    for link in links:
        with suppress(OSError):
            link.sendall(frame[:-200])
        if time.monotonic() > until:
            return
    while time.monotonic() < until:
        for link in links:
            with suppress(OSError):
                link.send(b"x")
        time.sleep(0.5)


def large_batches(broker: int, _namesrv: int, until: float) -> None:
    """Ten connections with batches of 4,000 messages, and one with batches of 150,000."""
    header = send_header(TOPIC, batch=True, properties="")
    bodies = [message_batch.encode([BatchItem(0, b"x", b"")] * size) for size in (4_000, 150_000)]
    frames = [request(RequestCode.SEND_BATCH_MESSAGE, 1, header, body).encode() for body in bodies]
    links = [dial(broker) for _ in range(11)]
    while time.monotonic() < until:
        for at, link in enumerate(links):
            link.sendall(frames[at == 10])
        for link in links:
            read(link, int.from_bytes(read(link, 4), "big"))


def held_pulls(broker: int, _namesrv: int, until: float) -> None:
    """100,000 pulls on one queue, each with a filter of its own, and messages that none wants."""
    with dial(broker) as link:
        new_topic(link, TOPIC, 1)
        links = []
        for at in range(400):
            links.append(dial(broker))
            header = pull_header(TOPIC, sys_flag=6, suspend_timeout_ms=120_000)
            frames = []
            for n in range(250):
                header.subscription = f"tag{at}-{n}"
                frames.append(request(RequestCode.PULL_MESSAGE, n, header).encode())
            links[-1].sendall(b"".join(frames))
            if time.monotonic() > until:
                return
        while time.monotonic() < until:
            ask(link, RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), b"nobody wants it")


def offsets(broker: int, _namesrv: int, until: float) -> None:
    """Commits for ever new queues, 300,000 at most, and the whole table asked for."""
    groups = [f"G{number}" for number in range(30)]
    consumers = [{"groupName": group, "subscriptionDataSet": []} for group in groups]
    beat = json.dumps({"clientID": "h", "consumerDataSet": consumers}).encode()
    with dial(broker) as link:
        ask(link, RequestCode.HEART_BEAT, None, beat)
        new_topic(link, TOPIC, 10_000)
        for group in groups:
            for begin in range(0, 10_000, 500):
                frames = []
                for queue_id in range(begin, begin + 500):
                    header = UpdateConsumerOffsetRequestHeader(
                        consumer_group=group, topic=TOPIC, queue_id=queue_id, commit_offset=1
                    )
                    frames.append(request(RequestCode.UPDATE_CONSUMER_OFFSET, 1, header).encode())
                link.sendall(b"".join(frames))
                for _ in frames:
                    read(link, int.from_bytes(read(link, 4), "big"))
            if time.monotonic() > until:
                break
        while time.monotonic() < until:
            ask(link, RequestCode.GET_ALL_CONSUMER_OFFSET)


def tables(broker: int, namesrv: int, until: float) -> None:
    """20,000 topics, and all of them asked for, of broker and name server."""
    configs = [
        {"topicName": f"H{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for number in range(20_000)
    ]
    with dial(broker) as link, dial(namesrv) as other:
        for at in range(0, len(configs), 100):
            body = json.dumps({"topicConfigList": configs[at : at + 100]}).encode()
            ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
            if time.monotonic() > until:
                return
        while time.monotonic() < until:
            ask(link, RequestCode.GET_ALL_TOPIC_CONFIG)
            ask(other, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def registrations(_broker: int, namesrv: int, until: float) -> None:
    """Registrations of 100,000 topics, each time other ones, from brokers that do not exist."""
    one = '"%s%d":{"topicName":"%s%d","readQueueNums":1,"writeQueueNums":1,"perm":6}'
    for turn in count():
        topics = ",".join(one % (f"R{turn}x", n, f"R{turn}x", n) for n in range(100_000))
        table = f'{{"dataVersion":{{"counter":{turn}}},"topicConfigTable":{{{topics}}}}}'
        body = f'{{"filterServerList":[],"topicConfigSerializeWrapper":{table}}}'.encode()
        if time.monotonic() > until:
            return
        with suppress(OSError), dial(namesrv) as link:
            command = request(RequestCode.REGISTER_BROKER, 1, None, body)
            command.ext = {
                "brokerName": f"fake{turn % 3}",
                "brokerAddr": f"10.0.0.{turn % 3}:1",
                "clusterName": "C",
                "brokerId": "0",
                "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            }
            link.sendall(command.encode())
            link.settimeout(max(0.1, until - time.monotonic()))
            read(link, int.from_bytes(read(link, 4), "big"))


def many_keys(broker: int, _namesrv: int, until: float) -> None:
    """Messages of 15,000 keys each."""
    keys = " ".join("k" for _ in range(15_000))
    header = send_header(TOPIC, properties=properties.encode({"KEYS": keys}).decode())
    with dial(broker) as link:
        while time.monotonic() < until:
            ask(link, RequestCode.SEND_MESSAGE_V2, header, b"x")


def different_keys(broker: int, _namesrv: int, until: float) -> None:
    """Messages of 1,000 keys that no other has."""
    with dial(broker) as link:
        for turn in count():
            keys = " ".join([f"key-{turn}-{number}" for number in range(1_000)])
            header = send_header(TOPIC, properties=properties.encode({"KEYS": keys}).decode())
            ask(link, RequestCode.SEND_MESSAGE_V2, header, b"x")
            if time.monotonic() > until:
                return


def long_keys(broker: int, _namesrv: int, until: float) -> None:
    """Messages whose key, id or tag has 30,000 letters."""
    texts = [{name: "k" * 30_000} for name in ("KEYS", "UNIQ_KEY", "TAGS")]
    headers = [send_header(TOPIC, properties=properties.encode(text).decode()) for text in texts]
    with dial(broker) as link:
        while time.monotonic() < until:
            for header in headers:
                ask(link, RequestCode.SEND_MESSAGE_V2, header, b"x")


def many_sends(broker: int, _namesrv: int, until: float) -> None:
    """400 connections, each with 200 messages of its own header at a time, and no rest."""
    links = []
    for at in range(400):
        header = send_header(TOPIC, producer_group=f"P{at}")
        frames = [
            request(RequestCode.SEND_MESSAGE_V2, n, header, b"x").encode() for n in range(200)
        ]
        links.append((dial(broker), b"".join(frames)))
        links[-1][0].setblocking(False)
    while time.monotonic() < until:
        for link, data in links:
            with suppress(BlockingIOError):
                link.send(data)
            with suppress(BlockingIOError):
                link.recv(1 << 18)


def bursts(broker: int, _namesrv: int, until: float) -> None:
    """400 connections that bring 200 messages each at one moment, and again once all have come."""
    frame = request(RequestCode.SEND_MESSAGE_V2, 1, send_header(TOPIC), b"x").encode()
    links = [dial(broker) for _ in range(400)]
    while time.monotonic() < until:
        for link in links:
            link.sendall(frame * 200)
        for link in links:
            for _ in range(200):
                read(link, int.from_bytes(read(link, 4), "big"))


def new_connections(broker: int, _namesrv: int, until: float) -> None:
    """Connections that are made, ask one thing and are closed, 500 at a time."""
    ask_once = request(RequestCode.GET_MAX_OFFSET, 1, None).encode()
    while time.monotonic() < until:
        links = []
        for _ in range(500):
            links.append(dial(broker))
            links[-1].sendall(ask_once)
        for link in links:
            link.close()


def large_answers(broker: int, _namesrv: int, until: float) -> None:
    """What 20,000 queues of one topic hold, and how far all groups have come, 20 at a time."""
    with dial(broker) as link:
        new_topic(link, TOPIC, 20_000)
        for queue_id in range(0, 20_000, 100):
            ask(link, RequestCode.SEND_MESSAGE_V2, send_header(TOPIC, queue_id=queue_id), b"x")
        codes = (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_BROKER_CONSUME_STATS)
        frames = []
        for code in codes:
            command = request(code, 1, None)
            command.ext = {"topic": TOPIC, "isOrder": "false"}
            frames.append(command.encode() * 20)
        while time.monotonic() < until:
            link.sendall(b"".join(frames))
            for _ in range(40):
                size = int.from_bytes(read(link, 4), "big")
                while size:
                    size -= len(read(link, min(size, 1 << 16)))


def large_bodies(broker: int, namesrv: int, until: float) -> None:
    """Bodies of 15 MiB that are JSON as Java writes it at best, for requests that read JSON."""
    body = b"[" + b"'a'," * 3_900_000
    frames = [
        request(code, 1, None, body).encode()
        for code in (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.CHECK_CLIENT_CONFIG,
        )
    ]
    with dial(broker) as link, dial(namesrv) as other:
        while time.monotonic() < until:
            for frame in frames:
                link.sendall(frame)
                read(link, int.from_bytes(read(link, 4), "big"))
            ask(other, RequestCode.QUERY_DATA_VERSION, None, body)


_ALL = (
    *(calm, busy_core, unfinished_frames, large_batches, held_pulls, offsets, tables),
    *(
        registrations,
        many_keys,
        different_keys,
        long_keys,
        many_sends,
        bursts,
        new_connections,
        large_answers,
        large_bodies,
    ),
)
ATTACKS = {each.__name__.replace("_", " "): each for each in _ALL}


def resident_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def waited_s(*pids: int) -> float:
    """How long the main threads of processes were ready to run and had no core, so far."""
    texts = [Path(f"/proc/{pid}/task/{pid}/schedstat").read_text() for pid in pids]
    return sum([int(text.split()[1]) for text in texts]) / 1e9


def measure(name: str, seconds: float) -> str:
    """One attack on a cluster of its own: a line of the table."""
    with tempfile.TemporaryDirectory() as root, LocalCluster(Path(root) / "store") as cluster:
        broker, namesrv = (
            int(addr.rpartition(":")[2]) for addr in (cluster.broker, cluster.namesrv)
        )
        pid = server_pid(broker)
        taken: list[float] = []
        running: list[float] = []
        most = resident_mib(pid)
        with (
            BlockingChannel(cluster.broker, 30.0) as channel,
            BlockingChannel(cluster.namesrv, 30.0) as routes,
        ):
            first = channel.call(RequestCode.SEND_MESSAGE_V2, send_header("Good"), b"good")
            offset = int(first.ext["queueOffset"])
            time.sleep(0.2)
            command = [sys.executable, __file__, "--attack", name, str(broker), str(namesrv)]
            with subprocess.Popen([*command, str(seconds)]) as attacker:
                while attacker.poll() is None:
                    began, waited = time.perf_counter(), waited_s(pid, os.getpid())
                    routes.call(
                        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="Good")
                    )
                    channel.call(RequestCode.SEND_MESSAGE_V2, send_header("Good"), b"good")
                    offset += 1
                    channel.call(RequestCode.PULL_MESSAGE, pull_header("Good", queue_offset=offset))
                    taken.append(time.perf_counter() - began)
                    running.append(taken[-1] - (waited_s(pid, os.getpid()) - waited))
                    if len(taken) % 20 == 0:
                        most = max(most, resident_mib(pid))
                    time.sleep(0.002)
    taken.sort()
    running.sort()
    columns = taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1]
    figures = "".join([f"{each * 1000:8.2f}" for each in columns])
    own = running[len(running) * 99 // 100] * 1000
    return f"{name:20}{figures}{own:9.2f}{most:8}{len(taken):8}"


def server_pid(port: int) -> int:
    """The process that listens at the port: it is a child of this one."""
    own = os.getpid()
    for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
        if "cometmq" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise SystemExit(f"no process of ours listens at {port}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--save", default="")
    parser.add_argument("--attack", nargs=4)
    given = parser.parse_args()
    if given.attack:
        name, broker, namesrv, seconds = given.attack
        with suppress(ConnectionError):
            ATTACKS[name](int(broker), int(namesrv), time.monotonic() + float(seconds))
        return
    head = f"{'attack':20}{'p50 ms':>8}{'p99 ms':>8}{'most':>8}{'p99 run':>9}{'MiB':>8}{'trips':>8}"
    lines = [head]
    print(lines[0], flush=True)
    for name in ATTACKS:
        if given.only in name:
            lines.append(measure(name, given.seconds))
            print(lines[-1], flush=True)
    if given.save:
        save(given.save, "\n".join(lines))


if __name__ == "__main__":
    main()
