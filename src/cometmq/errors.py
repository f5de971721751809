"""Every exception CometMQ raises on purpose, on one screen.

CometError
├── SettingsError          a setting is unknown or wrong: which, where, and what is near
├── ProtocolError          the peer violated the protocol; the connection is closed
│   └── BadHeader          one header field is missing or malformed
├── StoreError             the disk
│   ├── StoreLocked        another broker uses the directory
│   ├── NotAStore          the directory holds something else
│   ├── StoreFull          no space left
│   └── StoreCorrupt       bytes that recovery cannot explain
├── RemotingError          a call did not get its answer
│   ├── ConnectFailed, SendFailed, RemotingTimeout (also a TimeoutError), TooManyRequests
│   └── CertificateRefused     (a ConnectFailed) TLS with a server that is not trusted
├── BrokerError            the peer answered with an error code (code, remark, addr)
├── ClientError            misuse or state of a client
│   ├── NotStarted             before start and after stop
│   │   └── ClientStopped      (also a RemotingError) stopped while the call was under way
│   ├── RouteNotFound, BadFilter
│   ├── InvalidMessage
│   │   └── ValueNotDecoded    a received body is no value of its topic
│   ├── PartlySent             some of many messages could not be sent
│   ├── AccessDenied       a server does not permit it: the keys, or a topic's permission
│   ├── BrokerAway         a broker whose queues must be read cannot be asked
│   ├── TopicExists, WouldHideMessages
│   ├── GroupNotFound, MessageNotFound
│   ├── RowNotSent             a row that Spark writes could not be sent
│   ├── TableHasNewerWriter    another job has written to the table meanwhile
│   ├── BatchNotHandled        handlers on Spark could not finish a micro-batch
│   └── DataLoss               messages that a reader had planned are gone
│       ├── DamagedMessage     a body is not what its checksum says
│       ├── MessagesDeleted    retention has passed the reader
│       └── QueueShrank        the queue may grow again
└── Reject                 server side only: answer this code with this remark
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cometmq.model.queue import MessageQueue


class CometError(Exception):
    """Root of all errors raised on purpose."""

    retriable = False
    """Whether the same call may succeed later, or at another broker."""
    stale_route = False
    """Whether the client should fetch the route again."""
    msg_id = ""
    """The id of the message whose send failed, if it had got one."""
    first: CometError | None = None
    """The error of the first of several attempts, where it was another one than the last."""

    def note_first(self, first: CometError) -> None:
        """Name the error of the first attempt beside this one of a later attempt."""
        if first is not self and str(first) != str(self):
            self.first = first

    def __str__(self) -> str:
        """Return the sentence, with that of the first attempt where it was another one."""
        text = super().__str__()
        return text if self.first is None else f"{text}; the first attempt: {self.first}"

    def __reduce__(self) -> tuple[Callable[..., CometError], tuple[object, ...]]:
        """Pickle the text and the fields: handlers and tasks run in processes of their own."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[CometError], args: tuple[object, ...], fields: Mapping[str, object]
) -> CometError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class SettingsError(CometError):
    """A setting is unknown or has a bad value."""


class ProtocolError(CometError):
    """The peer sent bytes that are not a RocketMQ frame or header."""


class BadHeader(ProtocolError):
    """A header field is missing or malformed."""

    def __init__(self, field: str, problem: str = "is missing") -> None:
        self.field = field
        super().__init__(f"the header field {field} {problem}")


class StoreError(CometError):
    """The store cannot do what was asked."""


class StoreLocked(StoreError):
    """Another process uses the store directory."""


class NotAStore(StoreError):
    """The directory holds something other than a store."""


class StoreFull(StoreError):
    """The disk has no space left."""


class StoreCorrupt(StoreError):
    """Bytes on disk that recovery cannot explain."""


class RemotingError(CometError):
    """A call did not get its answer."""

    retriable = True


class ConnectFailed(RemotingError):
    """The connection to the address could not be opened."""

    stale_route = True


class CertificateRefused(ConnectFailed):
    """The server's certificate is of no trusted authority, for another name, or too old."""

    retriable = False


class SendFailed(RemotingError):
    """The connection broke before the answer came."""

    stale_route = True


class RemotingTimeout(RemotingError, TimeoutError):
    """No answer arrived within the timeout."""


class TooManyRequests(RemotingError):
    """The limit on unanswered requests is reached."""


class BrokerError(CometError):
    """The peer answered with an error code."""

    RETRIABLE = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
    """Codes after which RocketMQ's producer tries another broker (Java: DefaultMQProducer)."""

    def __init__(self, code: int, remark: str | None, addr: str) -> None:
        self.code = code
        self.remark = remark
        self.addr = addr
        self.retriable = code in self.RETRIABLE
        self.stale_route = code == 17
        super().__init__(f"{addr} answered code {code}: {remark or 'no remark'}")


class ClientError(CometError):
    """A client was misused, or is in the wrong state."""


class NotStarted(ClientError):
    """The client has not been started, or has been stopped."""


class ClientStopped(NotStarted, RemotingError):
    """The client was stopped while the call was under way; it is not tried again."""

    retriable = False

    def __init__(self, text: str = "the client was stopped before the call was over") -> None:
        super().__init__(text)


class RouteNotFound(ClientError):
    """No name server knows a usable route for the topic."""

    retriable = True
    stale_route = True


class AccessDenied(ClientError):
    """A server does not permit what was asked, by the keys or by a topic's permission, for good."""


class BrokerAway(ClientError):
    """Brokers whose queues a reader must read cannot be asked; they may come back."""

    retriable = True
    stale_route = True

    def __init__(self, message: str, brokers: Sequence[str]) -> None:
        self.brokers = tuple(brokers)
        super().__init__(message)


class InvalidMessage(ClientError):
    """The message breaks RocketMQ's rules for topic, body or properties."""


class ValueNotDecoded(InvalidMessage):
    """The body of a message that was received cannot be read as a value of its topic.

    `done` says how many messages of its batch, from the first on, were handled before it.
    """

    done = 0


class BadFilter(ClientError):
    """A filter expression is not SQL92 as RocketMQ reads it; `at` is the position, from 0."""

    def __init__(self, problem: str, at: int) -> None:
        self.at = at
        super().__init__(f"{problem} (character {at + 1} of the filter)")


class TopicExists(ClientError):
    """The topic that was to be created is there already; nothing was changed."""


class GroupNotFound(ClientError):
    """No broker knows the consumer group."""


class OperatorAtWork(ClientError):
    """Another operator is sending or dropping a group's dead letters; it may be called again."""


class MessageNotFound(ClientError):
    """No broker has the message: it never was there, was deleted, or is not indexed yet."""


class WouldHideMessages(ClientError):
    """A change would take queues of a topic from consumers; nothing was changed.

    `messages` says how many messages lie in which of these queues.
    """

    def __init__(self, problem: str, messages: Mapping[MessageQueue, int]) -> None:
        self.messages = dict(messages)
        super().__init__(problem)


class DataLoss(ClientError):
    """Messages that a reader had planned to read are no longer at the broker."""


class DamagedMessage(DataLoss):
    """The body of a message is not what its checksum says: damaged at its broker or on its way."""


class MessagesDeleted(DataLoss):
    """Retention has deleted messages that were planned to be read; the rest is still there."""


class QueueShrank(DataLoss):
    """A queue is shorter than it was; it may grow again once its broker is back."""

    retriable = True


class PartlySent(ClientError):
    """Some of many messages could not be sent.

    `results` has one entry for each message, in order: its SendResult, or None if it is unknown
    whether it was stored; `__cause__` is the first error.
    """

    def __init__(self, results: Sequence[object], first: CometError) -> None:
        self.results = results
        sent = sum(result is not None for result in results)
        super().__init__(f"{sent} of {len(results)} messages were stored; the first error: {first}")


class TableHasNewerWriter(ClientError):
    """Another job began to write to the same table; what this one had not committed is dropped."""


class RowNotSent(ClientError):
    """A row of a Spark task could not be sent; `row` counts from 0 in its `partition`."""

    def __init__(self, partition: int, row: int, topic: str | None, reason: str) -> None:
        self.partition = partition
        self.row = row
        self.topic = topic
        self.reason = reason
        super().__init__(
            f"row {row} of partition {partition} was not sent to the topic {topic}: {reason}"
        )


class BatchNotHandled(ClientError):
    """The handlers of a micro-batch could not finish it; the next start of the query replays it."""


class Reject(CometError):
    """Server side only: answer the request with this code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark
        super().__init__(remark)
