"""One small program around the C++ client, by the ctypes binding whose wheel brings the library.

Only there is the wheel on the path; the tests read its SENT and GOT lines.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from rocketmq.client import (  # type: ignore[import-not-found]
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RecvMessage,
)

MODE, NAMESRV, TOPIC, GROUP = sys.argv[1:5]
COUNT = int(sys.argv[5])
LARGE = "x" * 20_000
"""Above 4 KiB, where the client begins to compress."""


def message(n: int) -> Message:
    made = Message(TOPIC)
    made.set_keys(f"c{n}")
    made.set_tags("odd" if n % 2 else "even")
    made.set_property("number", str(n))
    made.set_body(f"cpp {n}" + (LARGE if MODE == "send-large" else ""))
    if MODE == "send-delayed":
        made.set_delay_time_level(1)
    return made


def sign(client: Producer | PushConsumer) -> None:
    """Have a client sign its requests, where the environment has keys."""
    if access := os.environ.get("ROCKETMQ_ACCESS_KEY"):
        client.set_session_credentials(access, os.environ["ROCKETMQ_SECRET_KEY"], "ALIYUN")


def send() -> None:
    producer = Producer(GROUP)
    sign(producer)
    producer.set_namesrv_addr(NAMESRV)
    producer.start()
    if MODE == "send-oneway":
        for n in range(COUNT):
            producer.send_oneway(message(n))
            say("SENT", "ONEWAY")
        time.sleep(1)  # it may still be writing, and shutting down would cut that off
    else:
        for n in range(COUNT):
            one = message(n)
            ordered = MODE == "send-ordered"
            done = producer.send_orderly(one, n % 5) if ordered else producer.send_sync(one)
            say("SENT", done.status.name, done.msg_id, done.offset)
    producer.shutdown()


class Consumer(PushConsumer):  # type: ignore[misc]
    """A consumer whose callback says itself whether a message was taken.

    In the binding's own way an exception means "later", but what the library then reads is chance.
    """

    def _register_callback(self, _callback: object) -> None:
        super()._register_callback(self._judge)

    def _judge(self, _consumer: object, handle: object) -> int:
        return 0 if self.take(RecvMessage(handle)) else 1


def consume() -> None:
    consumer = Consumer(GROUP, orderly=MODE == "consume-ordered")
    sign(consumer)
    consumer.set_namesrv_addr(NAMESRV)
    consumer.set_thread_count(1)
    left, refused, complete = [COUNT], set[str](), threading.Event()

    def take(came: RecvMessage) -> bool:
        if MODE == "consume-retry" and came.keys not in refused:
            refused.add(came.keys)
            return False
        got(came)
        left[0] -= 1
        if left[0] <= 0:
            complete.set()
        return True

    consumer.take = take
    consumer.subscribe(TOPIC, None, "odd" if MODE == "consume-tag" else "*")
    consumer.start()
    if not complete.wait(90):
        say("MISSING", left[0])
    consumer.shutdown()


def pull() -> None:
    consumer = PullConsumer(GROUP)
    consumer.set_namesrv_addr(NAMESRV)
    consumer.start()
    for came in consumer.pull(TOPIC):
        got(came)
    consumer.shutdown()


def got(came: RecvMessage) -> None:
    tags, body = came.tags.decode(), came.body.decode().removesuffix(LARGE)
    late_ms = int(time.time() * 1000) - came.born_timestamp
    say("GOT", came.queue_id, came.queue_offset, came.reconsume_times, tags, late_ms, body)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


{"send": send, "cons": consume, "pull": pull}[MODE[:4]]()
say("END")
os._exit(0)  # the library's threads outlive it and crash while the interpreter goes down
