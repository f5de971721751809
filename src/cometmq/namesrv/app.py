"""Puts a name server together, starts it and stops it.

The only file of the package that makes objects of other packages. Java: NamesrvController.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.access.server_access import ServerAccess, only_admission
from cometmq.errors import SettingsError
from cometmq.namesrv.broker_notifier import BrokerNotifier
from cometmq.namesrv.config_requests import NamesrvConfigRequests
from cometmq.namesrv.kv_config import KvConfig, Table, encode
from cometmq.namesrv.kv_requests import KvRequests
from cometmq.namesrv.name_server_figures import NameServerFigures
from cometmq.namesrv.registration_requests import RegistrationRequests
from cometmq.namesrv.route_registry import RouteRegistry
from cometmq.namesrv.route_requests import RouteRequests
from cometmq.namesrv.topic_list_requests import TopicListRequests
from cometmq.net.address import join_address
from cometmq.net.dispatcher import RequestDispatcher
from cometmq.net.server import RemotingServer
from cometmq.net.tls_contexts import RELOAD_S, TlsContexts
from cometmq.runtime.background import BackgroundTasks
from cometmq.runtime.system_clock_and_files import SystemClock, SystemFiles, expand_user_path
from cometmq.runtime.text_file import TextFile
from cometmq.runtime.time_slices import TimeSlices
from cometmq.settings.access import AccessSettings
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.monitoring import MonitoringSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.tls import TlsSettings

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.net.admission import Admission
    from cometmq.runtime.clock_and_file_protocols import Clock, Files


log = logging.getLogger(__name__)

FORGET_S = 1.0
"""Time between looks for topics of brokers that are gone, seconds."""


class NameServer:
    """A name server. Belongs to the loop that starts it; `open` makes it."""

    def __init__(
        self,
        routes: RouteRegistry,
        kv: KvConfig,
        settings: NamesrvSettings,
        clock: Clock,
        net: NetSettings,
        access_settings: AccessSettings,
        access: ServerAccess,
        conf: TextFile | None = None,
        admission: Admission | None = None,
        tls: TlsContexts | None = None,
        monitoring: MonitoringSettings | None = None,
    ) -> None:
        time_slices = TimeSlices()
        self._tls = tls or TlsContexts(TlsSettings())
        self._background = BackgroundTasks("name server")
        notifier = BrokerNotifier(self._background, self._tls)
        self._settings = settings
        self._access = access
        self._routes = routes
        self._registrations = RegistrationRequests(
            routes, kv, settings, clock.monotonic_ms, notifier.send, time_slices
        )
        route_requests = RouteRequests(routes, kv, settings, clock.monotonic_ms, time_slices)
        topic_lists = TopicListRequests(routes, settings, time_slices)
        self._live = live = LiveSettings(
            settings, net, access_settings, monitoring or MonitoringSettings()
        )
        live.subscribe(
            NamesrvSettings,
            self._registrations.adjust,
            route_requests.adjust,
            topic_lists.adjust,
        )
        endpoints = [
            *self._registrations.endpoints(),
            *route_requests.endpoints(),
            *topic_lists.endpoints(),
            *KvRequests(kv).endpoints(),
            *NamesrvConfigRequests(live, conf).endpoints(),
            *access.endpoints(),
        ]
        self._dispatcher = RequestDispatcher(endpoints, admission=admission)
        self._server = RemotingServer(
            self._dispatcher, net, monotonic_s=clock.monotonic_s, tls=self._tls
        )
        self.figures = NameServerFigures(routes, self._server)
        """What monitoring is shown."""
        self._is_serving = False
        self._route_requests = route_requests
        self.port = 0
        """The port listened on, once started."""

    @classmethod
    def open(
        cls,
        settings: NamesrvSettings | None = None,
        net: NetSettings | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        conf: Path | None = None,
        access: AccessSettings | None = None,
        admission: Admission | None = None,
        tls: TlsSettings | None = None,
        monitoring: MonitoringSettings | None = None,
    ) -> NameServer:
        """Make a name server that does not listen yet.

        `conf` is the settings file, where changes made while it runs are written down.
        `admission` is asked about every request before its handler is, in place of the access
        control that `access` asks for. `tls` says who may connect with it, by which certificates.
        `monitoring` is only shown with the other settings: `MonitoringServer` works with it.
        Raises SettingsError when the file at `kvConfigPath`, access.json or one of `tls` cannot be
        read.
        """
        settings, access = settings or NamesrvSettings(), access or AccessSettings()
        clock = clock or SystemClock()
        files = files or SystemFiles()
        kv = _open_kv(settings.kv_config_path, files)
        net = net or NetSettings()
        file = TextFile(conf, files) if conf else None
        routes = RouteRegistry(settings.registered_topics_max)
        guard = ServerAccess(access, _access_directory(settings, access), files)
        guard.keep_initial_users()
        hook = only_admission(admission, guard.control)
        contexts = TlsContexts(tls or TlsSettings())
        return cls(
            routes, kv, settings, clock, net, access, guard, file, hook, contexts, monitoring
        )

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return join_address(self._settings.bind_address, self.port)

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are answered."""
        return self._dispatcher.codes

    async def start(self) -> None:
        """Listen; raises SettingsError when the address cannot be had."""
        self.port = await self._server.start(
            self._settings.bind_address, self._settings.listen_port
        )
        self._live.note_chosen(replace(self._live.of(NamesrvSettings), listen_port=self.port))
        interval_s = self._settings.scan_not_active_broker_interval_ms / 1000
        self._background.every(interval_s, self._registrations.drop_expired, name="liveness scan")
        self._access.watch(self._background)
        self._background.every(FORGET_S, self._registrations.forget_gone, name="gone topics")
        if self._tls.reads_files:
            self._background.every(RELOAD_S, self._reload_tls, name="files of TLS")
        self._is_serving = True
        log.info("the name server serves at %s", self.address)

    def problems(self) -> list[str]:
        """Why it does not do its work now, in sentences; empty when it is ready."""
        if not self._is_serving:
            return ["the name server starts or stops"]
        if self._route_requests.is_waiting():
            return ["the name server gives no routes yet (needWaitForService)"]
        return []

    async def _reload_tls(self) -> None:
        await asyncio.to_thread(self._tls.reload)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        self._is_serving = False
        await self._background.stop()
        self._dispatcher.stop()
        await self._server.stop()
        log.info("the name server at %s has stopped", self.address)


def _access_directory(settings: NamesrvSettings, access: AccessSettings) -> Path:
    if access.is_guarded and not (settings.kv_config_path or access.auth_config_path):
        raise SettingsError("set authConfigPath to the directory that holds users and policies")
    return expand_user_path("kvConfigPath", settings.kv_config_path).parent


def _open_kv(path: str, files: Files) -> KvConfig:
    if not path:
        return KvConfig(None)
    target = expand_user_path("kvConfigPath", path)
    backup = target.with_name(target.name + ".bak")

    def save(table: Table) -> None:
        fresh = target.with_name(target.name + ".tmp")
        files.make_dir(target.parent)
        files.write(fresh, encode(table))
        if files.stat(target) is not None:
            files.rename(target, backup)
        files.rename(fresh, target)
        files.sync_dir(target.parent)

    try:
        former = files.read(backup)
        try:
            stored = files.read(target)
            if stored is None and former is not None:
                raise SettingsError("the file is missing")
            return KvConfig(stored, save)
        except SettingsError as problem:
            if former is None:
                raise
            found = KvConfig(former, save)
            log.warning("%s: %s; the copy before it, .bak, is used", target, problem)
            return found
    except (OSError, SettingsError) as error:
        raise SettingsError(
            f"kvConfigPath {target}: {error}; bring it back, or, to begin without KV "
            "configuration, move it and its .bak away"
        ) from error
