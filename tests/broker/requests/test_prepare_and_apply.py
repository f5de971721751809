"""What a handler does after its reads, it does once, however cold the data is that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.commands import pull_header, send_header
from broker.harness import new_broker, new_disk, run
from cometmq.net.handler import Reply
from cometmq.settings.store import StoreSettings
from cometmq.store.get_result import GetStatus
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, request
from cometmq.wire.frame import Frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.app import Broker

HALF = {"TRAN_MSG": "true", "PGROUP": "PG"}
SMALL = StoreSettings(commit_log_file_bytes=1 << 17, max_hash_slot_num=1000, max_index_num=1000)


class Connection:
    """As much of a connection as handlers use."""

    addr = "client:1"
    host = bytes(8)
    is_closed = False

    def on_close(self, callback: Callable[[object], None]) -> None:
        """Never called: it stays open."""


class HandlerCalls:
    """A broker whose handlers are called without a socket, on data that is not in memory."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.waited: list[int] = []
        self._handlers = {
            endpoint.code: endpoint.handler for endpoint in broker._handlers.endpoints()
        }

    async def call(self, code: int, header: Any = None, body: bytes = b"", **ext: str) -> Any:
        """What the handler answers; `waited` notes the codes that had to wait."""
        command = request(code, 1, header, body)
        command.ext.update(ext)
        answer = self._handlers[code](command, Connection())  # type: ignore[arg-type]
        if hasattr(answer, "__await__"):
            self.waited.append(code)
            awaited: Awaitable[Any] = answer
            answer = await awaited
        return answer


async def fill(handlers: HandlerCalls, count: int = 5) -> None:
    for number in range(count):
        await handlers.call(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"%d" % number)
    await handlers.call(RequestCode.SEND_MESSAGE_V2, send_header("T", properties=HALF), b"half")


async def on_cold_data(scenario: Callable[[HandlerCalls], Awaitable[None]]) -> None:
    """Run a scenario on a broker that finds nothing of what was sent in memory."""
    disk = new_disk()
    broker = new_broker(SMALL, disk=disk)
    await broker.store.start()
    await fill(HandlerCalls(broker))
    await broker.store.stop()
    broker = new_broker(SMALL, disk=disk)
    await broker.store.start()
    disk.is_asleep = True
    await scenario(HandlerCalls(broker))
    disk.is_asleep = False
    await broker.store.stop()


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[str]:
    calls: list[str] = []
    real = getattr(owner, name)

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(name)
        return real(*args, **more)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_a_send_back_of_a_cold_message_stores_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(handlers: HandlerCalls) -> None:
        puts = count_calls(monkeypatch, handlers.broker._handlers._send_back._store, "put")
        answer = await handlers.call(
            RequestCode.CONSUMER_SEND_MSG_BACK, group="G", offset="0", delayLevel="0"
        )
        assert isinstance(answer, Reply)
        assert (answer.code, handlers.waited, puts) == (0, [36], ["put"])

    run(on_cold_data(scenario))


def test_a_cold_half_message_is_committed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(handlers: HandlerCalls) -> None:
        store = handlers.broker.store
        entry = store.entry("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
        assert entry is not None
        puts = count_calls(monkeypatch, handlers.broker.state.transactions._store, "put")
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(entry[0]),
            "commitOrRollback": "8",
            "fromTransactionCheck": "true",
            "msgId": "M",
            "transactionId": "M",
        }
        answer = await handlers.call(RequestCode.END_TRANSACTION, **fields)
        assert (answer.code, handlers.waited) == (0, [RequestCode.END_TRANSACTION])
        assert puts == ["put", "put"]  # the message and the op message

    run(on_cold_data(scenario))


def test_a_cold_pull_commits_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(handlers: HandlerCalls) -> None:
        state = handlers.broker.state
        commits = count_calls(monkeypatch, state.offsets, "commit")
        notes = count_calls(monkeypatch, state.offsets, "note_pull")
        counts = count_calls(monkeypatch, state.stats, "count_get")
        header = pull_header("T", sys_flag=4 | 1, commit_offset=0)
        answer = await handlers.call(RequestCode.PULL_MESSAGE, header)
        assert handlers.waited == [RequestCode.PULL_MESSAGE]
        found = Command.decode(Frame(0, answer.head[8:], b""))
        assert found.remark == GetStatus.FOUND.name
        assert (commits, notes, counts) == (["commit"], ["note_pull"], ["count_get"])

    run(on_cold_data(scenario))


@pytest.mark.parametrize(
    ("code", "ext", "field", "found"),
    [
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, "offset", 0),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": str(1 << 60)}, "offset", 5),
        (RequestCode.GET_MIN_OFFSET, {}, "offset", 0),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {}, "timestamp", 1_700_000_000_123),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G"}, "offset", 0),
    ],
)
def test_questions_about_cold_queues_are_answered(
    code: RequestCode, ext: dict[str, str], field: str, found: int
) -> None:
    async def scenario(handlers: HandlerCalls) -> None:
        answer = await handlers.call(code, topic="T", queueId="0", **ext)
        assert answer.code == ResponseCode.SUCCESS
        assert getattr(answer.header, field) == found

    run(on_cold_data(scenario))
