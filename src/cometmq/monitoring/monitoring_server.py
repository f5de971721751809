"""Answers /metrics, /live and /ready for the roles of one process.

Owns which path shows what; a role is started before it and stopped after it, so that it can say
that it starts or stops. Refuses to know roles: each is what `MonitoredRole` says. Java: none.
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from cometmq.metrics.registry import Metric, MetricKind, Sample
from cometmq.monitoring.http_server import HttpRequest, HttpResponse, HttpServer
from cometmq.monitoring.prometheus_writer import LabelledSamples, PrometheusWriter, require_library
from cometmq.net.address import join_address
from cometmq.net.tls_contexts import RELOAD_S, TlsContexts
from cometmq.runtime.background import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from cometmq.monitoring.http_server import Answer
    from cometmq.settings.monitoring import MonitoringSettings
    from cometmq.settings.tls import TlsSettings

log = logging.getLogger(__name__)

READY = Metric(
    "cometmq_ready", MetricKind.GAUGE, "1", "1 while the role does its work, else 0: see /ready."
)
_JSON = "application/json"


class MonitoredRole(Protocol):
    """A broker or a name server, as monitoring sees it. All is asked on its loop."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of every series of it."""
        ...

    def problems(self) -> list[str]:
        """Why it does not do its work now, in sentences; empty when it is ready."""
        ...

    def figures(self, series_max: int) -> AsyncIterator[Sample]:
        """Its samples; of those that would be too many, a few more than `series_max` a metric."""
        ...


class MonitoringServer:
    """Shows the roles of one process. Belongs to their loop."""

    def __init__(
        self,
        settings: MonitoringSettings,
        roles: Callable[[], list[MonitoredRole]],
        tls: TlsSettings,
    ) -> None:
        """`roles()` are those that have begun to start; `tls` is theirs.

        It speaks TLS alone where they do (`tls.server.mode` is `enforcing`), else plain HTTP.
        Raises SettingsError where metrics are asked for and the extra `metrics` is not there.
        """
        if settings.exports:
            require_library()
        self._settings = settings
        self._roles = roles
        self._tls = TlsContexts(tls)
        self._text = PrometheusWriter(settings.metrics_otel_cardinality_limit)
        self._encoding = asyncio.Lock()
        answers: dict[str, Answer] = {"/live": self._live, "/ready": self._ready}
        if settings.exports:
            answers["/metrics"] = self._metrics
        self._http = HttpServer(answers)
        self._background = BackgroundTasks("monitoring")
        self.port = 0
        """The port listened on, once started."""

    @property
    def url(self) -> str:
        """What its paths are put behind."""
        scheme = "https" if self._tls.is_enforcing else "http"
        return f"{scheme}://{join_address(self._settings.host, self.port)}"

    async def start(self) -> None:
        """Listen; raises SettingsError when the address cannot be had."""
        context = self._tls.server if self._tls.is_enforcing else None
        settings = self._settings
        self.port = await self._http.start(
            settings.host, settings.metrics_prom_exporter_port, context
        )
        if context is not None:
            context.sni_callback = self._use_newest
            self._background.every(RELOAD_S, self._reload, name="files of TLS")

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        await self._background.stop()
        await self._http.stop()

    async def _reload(self) -> None:
        await asyncio.to_thread(self._tls.reload)

    def _use_newest(self, connection: object, *_rest: object) -> None:
        """Let a handshake go on with what the files of TLS hold now."""
        connection.context = self._tls.server  # type: ignore[attr-defined]

    async def _live(self, _request: HttpRequest) -> HttpResponse:
        """The loop answers, so the process lives."""
        return _json(HTTPStatus.OK, {"live": True})

    async def _ready(self, _request: HttpRequest) -> HttpResponse:
        roles = self._roles()
        problems = [problem for role in roles for problem in role.problems()]
        if not roles:
            problems = ["nothing has started yet"]
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return _json(status, {"ready": not problems, "problems": problems})

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        async with self._encoding:  # one at a time: each holds all series in memory
            found = [await self._samples_of(role) for role in self._roles()]
            body, kind = await asyncio.to_thread(self._text.encode, found, request.accept)
        return HttpResponse(HTTPStatus.OK, kind, body)

    async def _samples_of(self, role: MonitoredRole) -> LabelledSamples:
        is_ready = not role.problems()
        samples = [Sample(READY, (), int(is_ready))]
        limit = self._settings.metrics_otel_cardinality_limit
        samples += [sample async for sample in role.figures(limit)]
        return LabelledSamples({**self._settings.labels, **role.labels}, samples)


def _json(status: HTTPStatus, table: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status, _JSON, json.dumps(table).encode() + b"\n")
