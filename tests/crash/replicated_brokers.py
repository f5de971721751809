"""A name server and two brokers of one name in processes, under load of every kind of send.

`ReplicatedBrokers` starts, kills and promotes; `Load` sends by clients that live through all of it
and keeps what was acknowledged; `OrderedReader` handles an ordered topic meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from cometmq import Admin, Message, Producer, PushConsumer, SendStatus, TransactionState
from cometmq.errors import CometError
from cometmq.testing.cluster import ServerProcess
from crash.breakable_link import BreakableLink
from crash.pulled_messages import pull
from interop.apache import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq import MessageExt

TOPIC, ORDERED, QUEUES, KEYS, BATCH = "Lost", "LostInOrder", 4, 6, 5
NAME = "pair"
COMMON: dict[str, object] = {
    "brokerName": NAME,
    "inSyncReplicas": 2,
    "slaveTimeout": 500,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2_000,
    "mappedFileSizeCommitLog": 4 << 20,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": 95,
}
WAIT_S = 60.0


def until(is_true: Callable[[], bool], what: str, within_s: float = WAIT_S) -> float:
    """Wait; returns how many seconds that took."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < within_s, f"{what}: not within {within_s:g} s"
        time.sleep(0.02)
    return time.monotonic() - began


class Node:
    """One of the two brokers, at a port of its own."""

    def __init__(self, namesrv: str, store: Path, broker_id: int) -> None:
        self.namesrv, self.store, self.broker_id = namesrv, store, broker_id
        self.port = free_port()
        self.addr = f"127.0.0.1:{self.port}"
        self.link = BreakableLink(("127.0.0.2", self.port + 1), ("127.0.0.1", self.port + 1))
        self.process: ServerProcess | None = None
        self.said = ""

    def start(self) -> None:
        role = "SLAVE" if self.broker_id else "SYNC_MASTER"
        settings = COMMON | {
            "brokerRole": role,
            "brokerId": self.broker_id,
            "brokerIP2": "127.0.0.2",
            "haListenPort": self.port + 1,
        }
        sets = [f"--set={key}={value}" for key, value in settings.items()]
        arguments = ["broker", f"-n{self.namesrv}", f"-p{self.port}", f"--store={self.store}"]
        self.process = ServerProcess([*arguments, *sets], timeout_s=WAIT_S)

    def kill(self) -> None:
        assert self.process is not None
        self.said += self.process.stderr
        self.process.kill()
        self.process = None


class ReplicatedBrokers:
    """Two brokers of one name and their name server."""

    def __init__(self, *stores: Path) -> None:
        self.names = ServerProcess(["namesrv", "-p0"])
        self.namesrv = str(self.names.facts["namesrv"])
        self.master, self.slave = (
            Node(self.namesrv, store, number) for number, store in enumerate(stores)
        )
        self.admin = Admin(namesrv=self.namesrv)
        self.promoted_s: list[float] = []

    def __enter__(self) -> Self:
        self.master.start()
        self.slave.start()
        self.admin.start()
        self.admin.create_topic(TOPIC, QUEUES)
        self.admin.create_topic(ORDERED, QUEUES)
        self.wait_in_sync()
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.stop()
        for node in (self.slave, self.master):
            if node.process is not None:
                node.said += node.process.stderr
                node.process.kill()
            node.link.close()
        self.names.kill()
        said = self.master.said + self.slave.said
        assert "Traceback" not in said, said[-6_000:]

    def promote(self) -> None:
        """Make the slave the master; the two change places here."""
        began = time.monotonic()
        done = self.admin.promote(self.slave.addr)
        assert done.addr == self.slave.addr
        self.promoted_s.append(time.monotonic() - began)
        self.master, self.slave = self.slave, self.master

    def is_in_sync(self) -> bool:
        with contextlib.suppress(CometError):
            status = self.admin.replication_status(self.master.addr)
            return [each.lag_bytes for each in status.slaves] == [0] and self._knows_topics()
        return False

    def _knows_topics(self) -> bool:
        with contextlib.suppress(CometError):
            return self.admin.epochs(self.slave.addr) is not None
        return False

    def wait_in_sync(self) -> None:
        until(self.is_in_sync, "the slave has all of the log")


class Load:
    """Senders of every kind. Each keeps the bodies that were answered `SEND_OK`."""

    KINDS = ("single", "batch", "transaction", "delay", "ordered")

    def __init__(self, namesrv: str) -> None:
        self.acked: dict[str, list[bytes]] = {kind: [] for kind in self.KINDS}
        self.oneway = 0
        self.failures: Counter[str] = Counter()
        self._goes, self._ends = Event(), Event()
        self._busy: Counter[str] = Counter()
        self._lock = Lock()
        self._numbers: Counter[str] = Counter()
        options: dict[str, Any] = {"namesrv": namesrv, "check": self._check}
        self.producer = Producer("load", **options)
        self.strict = Producer("load-strict", namesrv=namesrv, strict_order=True)
        self._threads = [Thread(target=self._send, args=(kind,)) for kind in self.KINDS]

    def __enter__(self) -> Self:
        self.producer.start()
        self.strict.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._goes.set()
        for thread in self._threads:
            thread.join()
        self.producer.stop()
        self.strict.stop()

    @staticmethod
    def _check(_message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    def resume(self) -> None:
        self._goes.set()

    def pause(self) -> None:
        """Send nothing; returns once nothing is under way."""
        self._goes.clear()
        until(lambda: not any(self._busy.values()), "the senders have stopped")

    def counts(self) -> Counter[str]:
        return Counter({kind: len(bodies) for kind, bodies in self.acked.items()})

    def wait_for_more(self) -> float:
        """Wait until a message of each kind is acknowledged; seconds."""
        before = self.counts()
        return until(
            lambda: all(count > before[kind] for kind, count in self.counts().items()),
            "every kind of send is acknowledged again",
        )

    def _send(self, kind: str) -> None:
        send = getattr(self, f"_send_{kind}")
        while not self._ends.is_set():
            self._goes.wait()
            self._busy[kind] = 1
            try:
                if self._goes.is_set() and not self._ends.is_set():
                    self.acked[kind] += send(kind)
            except CometError as problem:
                self.failures[type(problem).__name__] += 1
                time.sleep(0.05)
            finally:
                self._busy[kind] = 0

    def _body(self, kind: str) -> bytes:
        self._numbers[kind] += 1
        number = self._numbers[kind]
        return b"%s %d " % (kind.encode(), number) + bytes(number * 37 % 400)

    def _send_single(self, kind: str) -> list[bytes]:
        body = self._body(kind)
        sent = self.producer.send(Message(TOPIC, body))
        self.producer.send_oneway(Message(TOPIC, self._body("oneway")))
        self.oneway += 1
        return [body] if sent.status is SendStatus.SEND_OK else []

    def _send_batch(self, kind: str) -> list[bytes]:
        bodies = [self._body(kind) for _ in range(BATCH)]
        results = self.producer.send_batch([Message(TOPIC, body) for body in bodies])
        return [
            body
            for body, sent in zip(bodies, results, strict=True)
            if sent.status is SendStatus.SEND_OK
        ]

    def _send_transaction(self, kind: str) -> list[bytes]:
        body = self._body(kind)
        with self.producer.transaction() as transaction:
            sent = transaction.send(Message(TOPIC, body))
        return [body] if sent.status is SendStatus.SEND_OK else []

    def _send_delay(self, kind: str) -> list[bytes]:
        body = self._body(kind)
        sent = self.producer.send(Message(TOPIC, body, delay_level=1))
        return [body] if sent.status is SendStatus.SEND_OK else []

    def _send_ordered(self, kind: str) -> list[bytes]:
        """The next message of a key, as often as it takes: none of the key may be left out."""
        number = self._numbers[kind]
        body = b"%d %d" % (number % KEYS, number // KEYS)
        sent = self.strict.send(Message(ORDERED, body, sharding_key=str(number % KEYS)))
        if sent.status is not SendStatus.SEND_OK:
            return []
        self._numbers[kind] += 1
        return [body]


class OrderedReader:
    """An orderly consumer that lives through everything; what it handled of each key, in order."""

    def __init__(self, namesrv: str) -> None:
        self.handled: dict[bytes, list[int]] = defaultdict(list)
        self.consumer = PushConsumer("audit", namesrv=namesrv, orderly=True, consume_from="first")
        self.consumer.subscribe(ORDERED, handler=self._handle)

    def _handle(self, messages: list[MessageExt]) -> None:
        for message in messages:
            key, number = message.body.split()
            self.handled[key].append(int(number))

    def firsts(self) -> dict[bytes, list[int]]:
        return {key: list(dict.fromkeys(numbers)) for key, numbers in self.handled.items()}


class StoredMessages:
    """What a broker has of both topics, read on from where the last comparison ended."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)

    def read(self, addr: str) -> tuple[set[bytes], list[list[bytes]]]:
        """The bodies of the plain topic, and those of each queue of the ordered one, in order."""
        for topic in (TOPIC, ORDERED):
            for queue_id in range(QUEUES):
                key = topic, queue_id
                self._known[key] = pull(addr, topic, queue_id, self._known[key])
        plain = {
            body for queue_id in range(QUEUES) for body in self._known[TOPIC, queue_id].values()
        }
        return plain, [list(self._known[ORDERED, id_].values()) for id_ in range(QUEUES)]


def assert_order(queues: list[list[bytes]], acked: list[bytes]) -> int:
    """Each key's messages stand in one queue, none is missing, and the first of each in order."""
    firsts: dict[bytes, list[int]] = {}
    for queue in queues:
        found: dict[bytes, list[int]] = defaultdict(list)
        for body in dict.fromkeys(queue):
            key, number = body.split()
            found[key].append(int(number))
        assert not found.keys() & firsts.keys(), "a key is in two queues"
        firsts |= found
    wanted: dict[bytes, int] = Counter(body.split()[0] for body in acked)
    for key, count in wanted.items():
        assert firsts[key][:count] == list(range(count)), (key, firsts[key][-10:])
    return sum(wanted.values())
