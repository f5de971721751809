"""The one hook that decides which requests reach a handler: for access control and quotas.

Owns what the hook is asked and when: once for each request, before its handler, whatever its code.
Fast paths, which answer requests without a handler, learn only headers whose like is admitted in
any case, or where its signature is right, and forget them when the rules change. Refuses to know
any rule. Not asked about: responses, requests refused with SYSTEM_BUSY because too many are
unanswered, and held requests when they are checked again.
Java: RPCHook.doBeforeRequest, AuthenticationPipeline, AuthorizationPipeline.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ProtocolError
from cometmq.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cometmq.net.connection import Connection
    from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
    from cometmq.net.handler import Handler, HandlerResult
    from cometmq.wire.frame import Frame
    from cometmq.wire.request_signature import SignatureCheck


class AdmissionRequest:
    """What somebody wants. Who it is, the connection and `fields` say."""

    __slots__ = ("_endpoint", "command")

    def __init__(self, endpoint: Endpoint, command: Command) -> None:
        self._endpoint = endpoint
        self.command = command
        """The request itself, with its body, which a signature may cover."""

    @property
    def code(self) -> int:
        """The request code."""
        return self.command.code

    @property
    def effects(self) -> RequestEffect:
        """What answering it does."""
        return self._endpoint.effects

    @property
    def resources(self) -> RequestResources:
        """The topics and groups it is about; raises ProtocolError where a broken body names them.

        Found anew with each look, in the body of some requests.
        """
        return self._endpoint.resources(self.command)

    @property
    def is_long_to_read(self) -> bool:
        """Whether a thread should look at `resources`, for there is much to read."""
        bytes_max = self._endpoint.resources_bytes_max
        return bytes_max is not None and len(self.command.body) > bytes_max

    @property
    def fields(self) -> Mapping[str, str]:
        """The header's fields, such as AccessKey and Signature."""
        return self.command.ext

    def __repr__(self) -> str:
        """Return one line for logs and failing tests."""
        return f"<admission of {self.command!r}>"


class Admission(ABC):
    """The hook; a subclass decides. Belongs to the loop of the one server that asks it."""

    def __init__(self) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Called by `rules_changed`; fast paths listen."""

    @abstractmethod
    def admit(self, request: AdmissionRequest, connection: Connection) -> Awaitable[None] | None:
        """Admit a request: now (None), later (an awaitable that returns), or never.

        Raises Reject, or returns an awaitable that does, with the code and remark of the refusal.
        A one-way request that is refused vanishes. A delayed one counts as unanswered.
        """

    @abstractmethod
    def always_admits(self, request: AdmissionRequest, connection: Connection) -> bool:
        """Whether `admit` need not be asked about more of this kind until `rules_changed`.

        That is requests of this connection with the same code and the same header but for queue,
        offsets, times and properties; the body may differ. False sends each of them through
        `admit`, and so keeps sends and pulls off their fast paths. Must not raise.
        """

    def signature_check(
        self, _request: AdmissionRequest, _connection: Connection
    ) -> SignatureCheck | None:
        """What tells by its signature alone whether one more request of this kind is admitted.

        Of a kind are those of `always_admits`, with the same access key. None: the hook must be
        asked. It holds until `rules_changed`. Must not raise.
        """
        return None

    def admit_found(self, _command: Command, _connection: Connection, _topic: str) -> None:
        """Admit a request once more when its handler has found which topic it is about.

        That is asked where only a stored message says it.
        Raises Reject to refuse; this one admits.
        """
        return

    def may_be_asked(self, _connection: Connection, _topic: str) -> bool:
        """Whether a client may see a half message of this topic, to say what became of it.

        Must not raise. This one lets it.
        """
        return True

    def rules_changed(self) -> None:
        """Have every request asked about again, also those that fast paths have learned."""
        for notify in self.on_change:
            notify()


class AdmittedHandler:
    """A handler that is called once admission was given."""

    __slots__ = ("_admission", "_endpoint")

    def __init__(self, admission: Admission, endpoint: Endpoint) -> None:
        self._admission = admission
        self._endpoint = endpoint

    def __call__(
        self, request: Command, connection: Connection
    ) -> HandlerResult | Awaitable[HandlerResult]:
        """Answer as the handler does; raises Reject where admission is refused."""
        delay = self._admission.admit(AdmissionRequest(self._endpoint, request), connection)
        if delay is None:
            return self._endpoint.handler(request, connection)
        # a future at once: this coroutine may be closed before it begins
        return self._after(asyncio.ensure_future(delay), request, connection)

    async def _after(
        self, delay: asyncio.Future[None], request: Command, connection: Connection
    ) -> HandlerResult:
        await delay
        result = self._endpoint.handler(request, connection)
        return await result if isinstance(result, Awaitable) else result


class LearningCondition(NamedTuple):
    """Requests like one that was learned are admitted ..."""

    check: SignatureCheck | None
    """... where this holds; None: in any case."""


class FastPathAdmission:
    """What a fast path asks before it learns a header."""

    __slots__ = ("_admission", "_endpoints")

    def __init__(self, admission: Admission, endpoints: Iterable[Endpoint]) -> None:
        """`endpoints` are those whose requests the fast path takes."""
        self._admission = admission
        self._endpoints = {int(endpoint.code): endpoint for endpoint in endpoints}

    def terms(self, frame: Frame, connection: Connection) -> LearningCondition | None:
        """On which terms requests like this one are admitted until the rules change; None: none."""
        try:
            command = Command.decode(frame)
        except ProtocolError:
            return None
        endpoint = self._endpoints.get(command.code)
        if endpoint is None:
            return None
        request = AdmissionRequest(endpoint, command)
        if self._admission.always_admits(request, connection):
            return LearningCondition(None)
        check = self._admission.signature_check(request, connection) if frame.body else None
        return None if check is None else LearningCondition(check)


FoundAdmission = Callable[[Command, "Connection", str], None]
"""What a handler calls with a request once it has found which topic it is about; raises Reject."""


AskAdmission = Callable[["Connection", str], bool]
"""What says whether a client may be asked about a half message of a topic."""


def ask_admission(admission: Admission | None) -> AskAdmission:
    """Return `may_be_asked` of the hook; without one, what lets each be asked."""
    return _let_ask if admission is None else admission.may_be_asked


def _let_ask(_connection: Connection, _topic: str) -> bool:
    return True


def found_admission(admission: Admission | None) -> FoundAdmission:
    """Return `admit_found` of the hook; without one, what admits everything."""
    return _admit_all if admission is None else admission.admit_found


def _admit_all(_command: Command, _connection: Connection, _topic: str) -> None:
    pass


def admitted(admission: Admission | None, endpoint: Endpoint) -> Handler:
    """Return the endpoint's handler, behind admission where there is any."""
    return endpoint.handler if admission is None else AdmittedHandler(admission, endpoint)
