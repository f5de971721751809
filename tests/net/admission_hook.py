"""An admission hook for tests: it counts, refuses and delays."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.admission import Admission, AdmissionRequest
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from cometmq.net.connection import Connection

REFUSED = ResponseCode.NO_PERMISSION
REMARK = "the hook refuses"


class Hook(Admission):
    """Counts requests by code; refuses all, or those about some topics; delays for some seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[int] = Counter()
        self.requests: list[AdmissionRequest] = []
        self.refuses_all = False
        self.refused_topics: set[str] = set()
        self.delay_s = 0.0
        self.is_standing = True
        """Whether what is admitted now is admitted in any case."""

    def admit(self, request: AdmissionRequest, _connection: Connection) -> Awaitable[None] | None:
        self.asked[request.code] += 1
        self.requests.append(request)
        if self._refuses(request):
            raise Reject(REFUSED, REMARK)
        return asyncio.sleep(self.delay_s) if self.delay_s else None

    def always_admits(self, request: AdmissionRequest, _connection: Connection) -> bool:
        return self.is_standing and not self.delay_s and not self._refuses(request)

    def _refuses(self, request: AdmissionRequest) -> bool:
        if self.refuses_all:
            return True
        return bool(self.refused_topics) and not self.refused_topics.isdisjoint(
            request.resources.topics
        )
