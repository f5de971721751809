"""Attackers, a mode each, in a process of their own: hostile_clients.py MODE PORT SECONDS."""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import suppress
from itertools import count

from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.frame import HEADER_BYTES_MAX
from cometmq.wire.headers.admin import CreateTopicRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.records import properties

TOPIC = "Hostile-" + (sys.argv[1] if len(sys.argv) > 1 else "")
QUEUES = 60
numbers = count(1)


def dial(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 5)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def pull(queue_id: int, offset: int, **more: object) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group="HG",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        commit_offset=0,
        sub_version=0,
        **{"sys_flag": 4, **more},  # type: ignore[arg-type]
    )
    return request(RequestCode.PULL_MESSAGE, next(numbers), header).encode()


def send(queue_id: int, body: bytes) -> bytes:
    header = SendMessageRequestHeaderV2(
        producer_group="HP",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties.encode({"UNIQ_KEY": "H"}).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return request(RequestCode.SEND_MESSAGE_V2, next(numbers), header, body).encode()


def fill(port: int, per_queue: int, body: bytes, queues: int = QUEUES) -> None:
    shape = CreateTopicRequestHeader(
        topic=TOPIC, default_topic="", read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    with dial(port) as link:
        make = request(RequestCode.UPDATE_AND_CREATE_TOPIC, next(numbers), shape)
        link.sendall(make.encode())
        link.recv(4096)
        for queue_id in range(queues):
            for _ in range(per_queue):
                link.sendall(send(queue_id, body))
                link.recv(4096)


def calm(_port: int, until: float) -> None:
    """Nobody attacks."""
    time.sleep(until - time.monotonic())


def trickle(port: int, until: float) -> None:
    """Many connections that send a valid frame again and again, a byte at a time."""
    frame = pull(0, 0)
    links = [dial(port) for _ in range(30)]
    for at in count():
        for link in links:
            link.send(frame[at % len(frame) : at % len(frame) + 1])
        if at % 100 == 0:
            if time.monotonic() > until:
                return
            for link in links:
                link.setblocking(False)
                with suppress(BlockingIOError):
                    link.recv(1 << 16)
                link.setblocking(True)


def deaf(port: int, until: float) -> None:
    """Connections that ask for much and never read."""
    fill(port, 32, b"x" * 8_000, queues=1)
    links = [dial(port) for _ in range(8)]
    for link in links:
        link.setblocking(False)
    while time.monotonic() < until:
        for link in links:
            with suppress(BlockingIOError, ConnectionError):
                link.send(pull(0, 0) * 20)
        time.sleep(0.005)


def held_pulls(port: int, until: float) -> None:
    """Ten thousand pulls that wait, all woken again and again."""
    fill(port, 1, b"x")
    waiting = {"sys_flag": 4 | 2, "suspend_timeout_ms": 60_000}
    with dial(port) as waker:
        ends = dict.fromkeys(range(QUEUES), 1)
        while time.monotonic() < until:
            link = dial(port)
            for queue_id, end in ends.items():
                link.sendall(b"".join(pull(queue_id, end, **waiting) for _ in range(170)))
            for queue_id in ends:
                waker.sendall(send(queue_id, b"wake"))
                waker.recv(4096)
                ends[queue_id] += 1
            link.close()


def lengths(port: int, until: float) -> None:
    """Ever new connections with frames that claim to be huge, or broken otherwise."""
    heads = (
        b"\xff\xff\xff\xff\x00\x00\x00\x10",
        b"\x7f\xff\xff\xff\x00\x00\x00\x10",
        b"\x00\x00\x00\x10\x00\xff\xff\xff",
        b"\x00\xff\xff\xff" + (HEADER_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x10\x00\x00\x00\x0cnot json at",
        b"GET / HTTP/1.1\r\n\r\n",
    )
    for at in count():
        if time.monotonic() > until:
            return
        with suppress(ConnectionError), dial(port) as link:
            link.sendall(heads[at % len(heads)])


def filters(port: int, until: float) -> None:
    """Filters as long as allowed, over a queue of messages that match none of them."""
    fill(port, 400, b"x", queues=1)
    with dial(port) as link:
        for at in count():
            costly = " OR ".join([f"UNIQ_KEY = '{at}-{n}'" for n in range(550)])
            link.sendall(pull(0, 0, subscription=costly, expression_type="SQL92"))
            link.recv(1 << 16)
            if time.monotonic() > until:
                return


def checks(port: int, until: float) -> None:
    """Questions whether filters are any, each as long as allowed and another one."""
    with dial(port) as link:
        for at in count():
            costly = " OR ".join([f"a{n} = {at}" for n in range(1100)])
            wanted = {"topic": TOPIC, "subString": costly, "expressionType": "SQL92"}
            body = json.dumps({"clientId": "h", "group": "HG", "subscriptionData": wanted}).encode()
            asked = request(RequestCode.CHECK_CLIENT_CONFIG, next(numbers), None, body)
            link.sendall(asked.encode())
            link.recv(1 << 16)
            if time.monotonic() > until:
                return


def beat(port: int, until: float, consumers: bytes) -> None:
    body = b'{"clientID":"h","consumerDataSet":[%b]}' % consumers
    with dial(port) as link:
        while time.monotonic() < until:
            link.sendall(request(RequestCode.HEART_BEAT, next(numbers), None, body).encode())
            link.recv(1 << 16)


def beats(port: int, until: float) -> None:
    """Heartbeats as long as allowed, of one group with very many subscriptions."""
    one = b'{"topic":"t%d","subString":"*","subVersion":1,"tagsSet":["' + b"x" * 400 + b'"]}'
    subs = b",".join(one % n for n in range(2_000))
    beat(port, until, b'{"groupName":"HB","subscriptionDataSet":[%b]}' % subs)


def groups(port: int, until: float) -> None:
    """Heartbeats of as many groups as allowed."""
    one = b'{"groupName":"HB%d","subscriptionDataSet":[{"topic":"t","subString":"*"}]}'
    beat(port, until, b",".join(one % n for n in range(1_000)))


_ALL = (calm, trickle, deaf, held_pulls, lengths, filters, checks, beats, groups)
MODES = {each.__name__: each for each in _ALL}

if __name__ == "__main__":
    with suppress(ConnectionError):
        MODES[sys.argv[1]](int(sys.argv[2]), time.monotonic() + float(sys.argv[3]))
