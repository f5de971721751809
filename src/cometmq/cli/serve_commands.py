"""The commands that serve: standalone, namesrv, broker.

Turns files, environment and options into settings; `standalone` changes some defaults for use on
one machine.
Java: mqnamesrv, mqbroker, BrokerStartup, NamesrvStartup.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.log_output import log_by
from cometmq.cli.process_limits import problems, raise_open_files
from cometmq.cli.ready_file import ReadyFile
from cometmq.cli.role_runner import RunningRoles, print_lines, serve
from cometmq.cli.supervised_brokers import (
    BROKERS_MAX,
    ONE_EACH,
    FirstPorts,
    SupervisedBrokers,
    broker_places,
    brokers_below,
)
from cometmq.errors import SettingsError
from cometmq.net.address import join_address
from cometmq.net.server import require_free
from cometmq.runtime.system_clock_and_files import expand_user_path
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.keys import is_secret, key_of
from cometmq.settings.load import (
    LoadedSettings,
    RawSetting,
    env_name_of,
    from_environment,
    from_options,
    from_text,
    load,
)
from cometmq.settings.logs import LogSettings
from cometmq.settings.monitoring import MonitoringSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings
from cometmq.settings.tls import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cometmq.cli.monitored_roles import Monitoring
    from cometmq.cli.supervised_brokers import BrokerPlace

_SHARED_KINDS = (NetSettings, AccessSettings, LogSettings, MonitoringSettings, TlsSettings)
_BROKER_KINDS = (BrokerSettings, StoreSettings, *_SHARED_KINDS)
_NAMESRV_KINDS = (NamesrvSettings, *_SHARED_KINDS)
_FAR_AWAY = ((socket.AF_INET, ("192.0.2.1", 9)), (socket.AF_INET6, ("2001:db8::1", 9)))
_WILDCARDS = ("", "0.0.0.0", "::")

TLS_FILE = "tls.config.file"

STANDALONE = {
    "brokerName": "broker-a",
    "traceTopicEnable": "true",
    "deadLetterDeduplicate": "true",
    "enablePropertyFilter": "true",
    # The disk of a developer's machine is often nearly full: go on, and do not delete yesterday's
    # messages for it.
    "cleanFileForciblyEnable": "false",
    "diskSpaceWarningLevelRatio": "98",
}
"""The defaults of `standalone`; files, environment and options override them."""


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options that all three commands have."""

    config: str | None
    host: str | None
    sets: tuple[str, ...]
    ready_file: Path | None
    verbose: int
    until_stdin_closes: bool

    @property
    def conf(self) -> Path | None:
        """The settings file, if one was given."""
        return None if self.config is None else Path(self.config).absolute()


_common: list[Callable[[Any], Any]] = [
    click.option("-c", "--config", metavar="FILE", help="Settings, in RocketMQ's properties form."),
    click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option(
        "--set", "sets", metavar="KEY=VALUE", multiple=True, help="One setting; may be repeated."
    ),
    click.option(
        "--ready-file", type=click.Path(path_type=Path), help="Written when all accept, as JSON."
    ),
    click.option("-v", "--verbose", count=True, help="Log what happens; twice: everything."),
    click.option("--until-stdin-closes", is_flag=True, hidden=True),
]


def _common_options(command: Any) -> Any:
    for option in reversed(_common):
        command = option(command)
    return command


_port = click.IntRange(0, 65_535)


@click.command()
@click.option("--store", metavar="DIR", help="Directory of the store.  [default: ~/store]")
@click.option("--namesrv-port", type=_port, help="0: any free one.  [default: 9876]")
@click.option(
    "--broker-port", type=_port, help="0: any free one; of several the first.  [default: 10911]"
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    help="So many brokers of one cluster, each in a process and a directory below DIR of its own, "
    "its port ten above the one before.  [default: 1, in this process]",
)
@_common_options
def standalone(
    store: str | None,
    namesrv_port: int | None,
    broker_port: int | None,
    brokers: int,
    **rest: Any,
) -> None:
    """Start a name server and a broker in one process; Ctrl-C stops both.

    The settings of FILE, of COMETMQ_... variables and of --set go to whichever of the two has them;
    the ports only come from the options, but for the broker's, which is listenPort. One broker uses
    one core: with --brokers N clients spread over N of them, and one that ends is started again.
    """
    common = CommonOptions(**rest)
    given = [one for layer in _layers(common, _environment()) for one in layer]
    theirs = [one for one in given if one.key in _namesrv_only()]
    options = {"bindAddress": common.host, "listenPort": broker_port, "storePathRootDir": store}
    ours = [one for one in given if one not in theirs]
    loaded = _load(_BROKER_KINDS, from_options(STANDALONE), ours, from_options(options))
    broker_settings = loaded.of(BrokerSettings)
    places = _places(brokers, loaded, given)
    kept = Path(broker_settings.store_path_root_dir) / "config" / "kvConfig.json"
    names = _load(
        _NAMESRV_KINDS,
        from_options({"kvConfigPath": str(kept)}),
        theirs,
        from_options({"bindAddress": broker_settings.bind_address, "listenPort": namesrv_port}),
    )
    access = _access_of_name_server(loaded.of(AccessSettings), kept.parent)
    log_by(loaded.of(LogSettings), common.verbose)
    ready = ReadyFile(common.ready_file)
    tls = _trusting_itself(loaded.of(TlsSettings))
    monitoring = _monitoring(loaded)

    async def begin(running: RunningRoles) -> None:
        from cometmq.cli.monitored_roles import MonitoredNameServer
        from cometmq.namesrv.app import NameServer

        await running.start(monitoring)
        name_server = NameServer.open(
            names.of(NamesrvSettings),
            loaded.of(NetSettings),
            conf=common.conf,
            access=access,
            tls=tls,
            monitoring=loaded.of(MonitoringSettings),
        )
        monitoring.show(MonitoredNameServer(name_server))
        await running.start(name_server)
        host, port = broker_settings.bind_address, name_server.port
        namesrv_addr = _joined(join_address(_inside(host), port), broker_settings.namesrv_addr)
        facts = {"namesrv": join_address(_outside(host), port)}
        if places:
            supervised = SupervisedBrokers(places, _passed_on(common, namesrv_addr))
            await _start_brokers(running, supervised, monitoring, ready, facts)
            return
        mine = replace(broker_settings, namesrv_addr=namesrv_addr)
        await _start_broker(running, mine, loaded, tls, monitoring, ready, facts, common.conf)

    serve(begin, until_stdin_closes=common.until_stdin_closes)


@click.command()
@click.option("-p", "--port", type=_port, help="0: any free one.  [default: 9876]")
@_common_options
def namesrv(
    port: int | None,
    **rest: Any,
) -> None:
    """Start a name server; Ctrl-C stops it."""
    common = CommonOptions(**rest)
    options = from_options({"bindAddress": common.host, "listenPort": port})
    loaded = _load(
        _NAMESRV_KINDS,
        *_layers(common, from_environment(os.environ, _NAMESRV_KINDS)),
        options,
    )
    log_by(loaded.of(LogSettings), common.verbose)
    ready = ReadyFile(common.ready_file)
    monitoring = _monitoring(loaded)

    async def begin(running: RunningRoles) -> None:
        from cometmq.cli.monitored_roles import MonitoredNameServer
        from cometmq.namesrv.app import NameServer

        await running.start(monitoring)
        settings = loaded.of(NamesrvSettings)
        name_server = NameServer.open(
            settings,
            loaded.of(NetSettings),
            conf=common.conf,
            access=loaded.of(AccessSettings),
            tls=loaded.of(TlsSettings),
            monitoring=loaded.of(MonitoringSettings),
        )
        monitoring.show(MonitoredNameServer(name_server))
        await running.start(name_server)
        address = join_address(_outside(settings.bind_address), name_server.port)
        _announce(running, ready, {"namesrv": address, **monitoring.facts})

    serve(begin, until_stdin_closes=common.until_stdin_closes)


@click.command()
@click.option("-n", "--namesrv", metavar="HOST:PORT;...", help="Name servers to register with.")
@click.option("-p", "--port", type=_port, help="0: any free one.  [default: 10911]")
@click.option("--store", metavar="DIR", help="Directory of the store.  [default: ~/store]")
@click.option("--of-standalone", is_flag=True, hidden=True)
@_common_options
def broker(
    namesrv: str | None,
    port: int | None,
    store: str | None,
    of_standalone: bool,
    **rest: Any,
) -> None:
    """Start a broker; Ctrl-C stops it.

    Without -n the name servers come from namesrvAddr in FILE or from the variable NAMESRV_ADDR.
    """
    common = CommonOptions(**rest)
    options = {
        "bindAddress": common.host,
        "listenPort": port,
        "storePathRootDir": store,
        "namesrvAddr": namesrv,
    }
    base = {"brokerName": _host_name(), "namesrvAddr": os.environ.get("NAMESRV_ADDR")}
    layers = _layers(common, from_environment(os.environ, _BROKER_KINDS))
    if of_standalone:
        base |= STANDALONE
        layers = [[one for one in layer if one.key not in _namesrv_only()] for layer in layers]
    loaded = _load(_BROKER_KINDS, from_options(base), *layers, from_options(options))
    log_by(loaded.of(LogSettings), common.verbose)
    ready = ReadyFile(common.ready_file)
    monitoring = _monitoring(loaded)

    async def begin(running: RunningRoles) -> None:
        await running.start(monitoring)
        settings = loaded.of(BrokerSettings)
        facts = {"namesrv": settings.namesrv_addr} if settings.namesrv_addr else {}
        tls = loaded.of(TlsSettings)
        if of_standalone:
            tls = _trusting_itself(tls)
        await _start_broker(running, settings, loaded, tls, monitoring, ready, facts, common.conf)

    serve(begin, until_stdin_closes=common.until_stdin_closes)


def _joined(*addresses: str) -> str:
    return ";".join(filter(None, addresses))


def _places(brokers: int, loaded: LoadedSettings, given: Sequence[RawSetting]) -> list[BrokerPlace]:
    """The places of several brokers; none for one, which runs in this process."""
    settings = loaded.of(BrokerSettings)
    directory = expand_user_path("storePathRootDir", settings.store_path_root_dir).absolute()
    if brokers > 1:
        for one in given:
            if one.key in ONE_EACH:
                raise SettingsError(
                    f"{one.where}: {one.key} would be the same for all {brokers} brokers: leave it "
                    "out, or start each with `cometmq broker`"
                )
        shown_at = loaded.of(MonitoringSettings).metrics_prom_exporter_port
        ports = FirstPorts(settings.listen_port, shown_at and shown_at + 1)
        return broker_places(brokers, directory, ports)
    if not (directory / "commitlog").exists() and (there := brokers_below(directory)):
        raise SettingsError(
            f"{directory} holds the stores of {there} brokers: give --brokers {max(there, 2)}, or "
            "choose another directory"
        )
    return []


async def _start_brokers(
    running: RunningRoles,
    brokers: SupervisedBrokers,
    monitoring: Monitoring,
    ready: ReadyFile,
    facts: Mapping[str, str],
) -> None:
    from cometmq.cli.monitored_roles import MonitoredProcesses

    monitoring.show(MonitoredProcesses(brokers))
    await running.start(brokers)
    listed = {**facts, **brokers.addresses, "store": str(brokers.directory)}
    listed |= {**monitoring.facts, **brokers.shown_at}
    _announce(running, ready, listed, brokers=brokers.addresses)


def _passed_on(common: CommonOptions, namesrv_addr: str) -> list[str]:
    """The options with which `standalone` starts each of several brokers."""
    found = ["--namesrv", namesrv_addr, *(["-v"] * common.verbose)]
    found += [part for one in common.sets for part in ("--set", one)]
    found += ["--config", str(common.conf)] if common.conf else []
    return found + (["--host", common.host] if common.host else [])


def _access_of_name_server(access: AccessSettings, config: Path) -> AccessSettings:
    """Settings with which the name server keeps its own users beside those of the broker."""
    if access.authentication_enabled and access.inner_credentials is None:
        raise SettingsError(
            "authenticationEnabled is true: set innerClientAuthenticationCredentials too, with "
            "which the broker registers at its name server"
        )
    directory = Path(access.auth_config_path or config)
    accounts = access.plain_acl_file or str(directory / "plain_acl.yml")
    return replace(access, auth_config_path=str(directory / "namesrv"), plain_acl_file=accounts)


async def _start_broker(
    running: RunningRoles,
    settings: BrokerSettings,
    loaded: LoadedSettings,
    tls: TlsSettings,
    monitoring: Monitoring,
    ready: ReadyFile,
    facts: Mapping[str, object],
    conf: Path | None,
) -> None:
    from cometmq.broker.served_broker import ServedBroker
    from cometmq.cli.monitored_roles import MonitoredBroker

    if not settings.broker_ip1:
        settings = replace(settings, broker_ip1=_outside(settings.bind_address))
    await require_free(settings.bind_address, settings.listen_port)
    store = expand_user_path("storePathRootDir", settings.store_path_root_dir).absolute()
    settings = replace(settings, store_path_root_dir=str(store))
    served = ServedBroker.open(
        settings,
        loaded.of(StoreSettings),
        net=loaded.of(NetSettings),
        conf=conf,
        access=loaded.of(AccessSettings),
        tls=tls,
        monitoring=loaded.of(MonitoringSettings),
    )
    monitoring.show(MonitoredBroker(served))
    await running.start(served)
    _warn_of_limits(loaded.of(NetSettings).connections_max)
    if not settings.namesrv_addr:
        click.echo(
            "cometmq: no name server is given (-n, namesrvAddr or NAMESRV_ADDR), so clients do not "
            "find this broker",
            err=True,
        )
    name = f"{settings.broker_name} in {settings.broker_cluster_name}"
    ours = {"broker": served.address, "name": name, "store": str(store)}
    _announce(running, ready, {**facts, **ours, **monitoring.facts})


def _warn_of_limits(connections_max: int) -> None:
    for problem in problems(connections_max, raise_open_files()):
        click.echo(f"cometmq: {problem}", err=True)


def _monitoring(loaded: LoadedSettings) -> Monitoring:
    from cometmq.cli.monitored_roles import Monitoring

    return Monitoring(loaded.of(MonitoringSettings), loaded.of(TlsSettings))


def _trusting_itself(tls: TlsSettings) -> TlsSettings:
    """So that the broker of this process connects to its name server, at whatever address."""
    if not (tls.connects and tls.serves) or tls.client_trust_cert_path:
        return tls
    return replace(tls, client_trust_cert_path=tls.server_cert_path, client_check_hostname=False)


def _announce(
    running: RunningRoles, ready: ReadyFile, facts: Mapping[str, object], **more: object
) -> None:
    """Print facts, and write them with more to the ready file."""
    width = max(map(len, facts))
    print_lines(*(f"{what:<{width}}  {where}" for what, where in facts.items()), "Ctrl-C stops it.")
    running.at_end(ready.remove)
    ready.write({**facts, **more, "pid": os.getpid()})


def _load(kinds: tuple[type, ...], *layers: list[RawSetting]) -> LoadedSettings:
    loaded = load(kinds, *layers)
    for warning in loaded.warnings:
        click.echo(f"cometmq: {warning}", err=True)
    return loaded


def _layers(common: CommonOptions, environment: list[RawSetting]) -> list[list[RawSetting]]:
    """What the file, that of TLS, the environment and --set say; later ones win."""
    file, sets = _from_file(common.config), _from_sets(common.sets)
    names = [one for one in (*file, *environment, *sets) if one.key == TLS_FILE and one.text]
    tls = _from_file(names[-1].text) if names else []
    for one in tls:
        if not one.key.startswith("tls."):
            raise SettingsError(f"{one.where}: {one.key} is no setting of TLS ({TLS_FILE})")
    return [file, tls, environment, sets]


def _from_file(name: str | None) -> list[RawSetting]:
    if name is None:
        return []
    try:
        return from_text(Path(name).read_text(encoding="utf-8", errors="surrogateescape"), name)
    except OSError as error:
        raise SettingsError(f"cannot read {name}: {error.strerror or error}") from error


def _from_sets(sets: tuple[str, ...]) -> list[RawSetting]:
    found = []
    for one in sets:
        key, equals, value = one.partition("=")
        if not equals:
            raise SettingsError(f"--set {one}: write KEY=VALUE")
        if key.strip() in _secret_keys():
            raise SettingsError(
                f"--set {key.strip()}: every user of this machine can read arguments; put it into "
                f"the file of -c, or into the variable {env_name_of(key.strip())}"
            )
        found.append(RawSetting(key.strip(), value, f"--set {one}"))
    return found


def _secret_keys() -> set[str]:
    return {key_of(each) for kind in _BROKER_KINDS for each in fields(kind) if is_secret(each)}


def _environment() -> list[RawSetting]:
    """Return what the environment says to the broker and, where the broker has no such key, to
    the name server.
    """
    return from_environment(os.environ, (*_BROKER_KINDS, NamesrvSettings))


def _namesrv_only() -> set[str]:
    keys = {kind: {key_of(field) for field in fields(kind)} for kind in _BROKER_KINDS}
    return {key_of(field) for field in fields(NamesrvSettings)}.difference(*keys.values())


def _host_name() -> str:
    """Return this machine's name with only what a topic's name may hold; brokers are topics."""
    return re.sub(r"[^%|a-zA-Z0-9_-]", "-", socket.gethostname())


def _inside(bind_address: str) -> str:
    """Return the address that this process reaches itself by."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind_address, bind_address)


def _outside(bind_address: str) -> str:
    """Return the address that others reach us by: the one listened on, if it is one."""
    if bind_address not in _WILDCARDS:
        return bind_address
    family, far = _FAR_AWAY[bind_address == "::"]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(far)  # sends nothing; picks the interface of the way out
        except OSError:
            return _inside(bind_address)
        return str(probe.getsockname()[0])
