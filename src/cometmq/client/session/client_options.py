"""The settings of every client, with RocketMQ's defaults and ranges, and checks of settings.

Owns the settings and their checks; refuses to know what uses them. Invariant: every instance of
ClientOptions is valid.
Java: ClientConfig (its fields)
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict

from cometmq.client.middleware.middleware import Middleware
from cometmq.errors import SettingsError
from cometmq.model.topic import TRACE_TOPIC
from cometmq.rules.name_validation import group_name_problem, topic_name_problem
from cometmq.rules.namespace import instance_of
from cometmq.wire.compression import PACK
from cometmq.wire.request_signature import Credentials

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import UnionType

NAMESRV_VARIABLE = "NAMESRV_ADDR"
_FORBIDDEN_GROUPS = {"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The settings that every client has."""

    namesrv: tuple[str, ...]
    instance_name: str | None = None
    connect_timeout_s: float = 3.0
    call_timeout_s: float = 3.0
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str | None = None
    namespace_v2: str | None = None
    unit_name: str | None = None
    tls: ssl.SSLContext | None = None
    trace: str | None = None
    middleware: tuple[Middleware, ...] = ()

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("access_key", "secret_key", "security_token"):
            check_type(name, getattr(self, name), str | None, "a text")
        if (self.access_key is None) != (self.secret_key is None):
            raise SettingsError("access_key and secret_key go together; one of them is missing")
        if self.security_token is not None and self.access_key is None:
            raise SettingsError("security_token needs access_key and secret_key beside it")
        for name in ("namespace", "namespace_v2", "unit_name"):
            text = getattr(self, name)
            check_type(name, text, str | None, "a text")
            problem = None if text is None else group_name_problem(text)
            if problem:
                raise SettingsError(f"{name} is {text!r}: {problem.removeprefix('the group ')}")
        check_type("instance_name", self.instance_name, str | None, "a text")
        for name in ("connect_timeout_s", "call_timeout_s", "route_refresh_s", "heartbeat_s"):
            check_seconds(name, getattr(self, name))

    @property
    def credentials(self) -> Credentials | None:
        """Who signs the requests, or None."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)


class ClientSettings(TypedDict, total=False):
    """The settings that every client takes by name."""

    namesrv: str | Sequence[str] | None
    instance_name: str | None
    heartbeat_s: float
    route_refresh_s: float
    connect_timeout_s: float
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    namespace: str | None
    namespace_v2: str | None
    unit_name: str | None
    tls: ssl.SSLContext | bool | None
    trace: bool | str | None
    middleware: Sequence[Middleware]


def client_options(settings: Mapping[str, Any], environ: Mapping[str, str]) -> ClientOptions:
    """Make the options of a client from its keyword settings; the others have their defaults.

    Other names are ignored. Raises SettingsError for an invalid value.
    """
    own = {name: settings[name] for name in CLIENT_SETTINGS if name in settings}
    own["namesrv"] = name_servers(own.get("namesrv"), environ)
    if own.get("namespace") is None:
        own["namespace"] = next(filter(None, map(instance_of, own["namesrv"])), None)
    if "trace" in own:
        own["trace"] = _trace_topic(own["trace"])
    if "tls" in own:
        own["tls"] = tls_context(own["tls"])
    if "middleware" in own:
        own["middleware"] = _middleware(own["middleware"])
    return ClientOptions(**own)


CLIENT_SETTINGS = frozenset(ClientSettings.__annotations__)


def _trace_topic(given: object) -> str | None:
    """The topic of the message trace: RocketMQ's own for True, another by its name."""
    if given is None or given is False:
        return None
    topic = TRACE_TOPIC if given is True else given
    check_type("trace", topic, str, "True or the name of a topic")
    problem = topic_name_problem(str(topic))
    if problem:
        raise SettingsError(f"trace is {given!r}: {problem}")
    return str(topic)


def _middleware(given: object) -> tuple[Middleware, ...]:
    """The middleware of a client, in its order."""
    if not isinstance(given, Sequence) or not all(isinstance(one, Middleware) for one in given):
        raise SettingsError(f"middleware is {given!r:.80}; it must be a list of Middleware objects")
    return tuple(given)


def tls_context(given: object) -> ssl.SSLContext | None:
    """The TLS context; True means one that trusts the system's certificate authorities."""
    if given is True:
        return _default_tls()
    if given is None or given is False or isinstance(given, ssl.SSLContext):
        return given or None
    raise SettingsError(f"tls is {given!r}; it must be True or an ssl.SSLContext")


@cache
def _default_tls() -> ssl.SSLContext:
    """The same each time: clients that share their connections have one TLS context."""
    return ssl.create_default_context()


def name_servers(
    namesrv: str | Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The name servers given as "host:port;host:port" or a list, else those of NAMESRV_ADDR."""
    given = environ.get(NAMESRV_VARIABLE, "") if namesrv is None else namesrv
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    if not (isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts)):
        raise SettingsError(f"namesrv is {given!r}; write 'host:9876', or a list of such texts")
    found = tuple(part.strip().removeprefix("http://") for part in parts if part.strip())
    if not found:
        raise SettingsError("no name server is known: pass namesrv='host:9876' or set NAMESRV_ADDR")
    for addr in found:
        host, _, port = addr.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise SettingsError(f"the name server {addr!r} is no address; write host:port")
    return found


def check_names(given: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raise TypeError for a setting that does not exist, with the nearest one that does."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"there is no setting {name!r}{hint}")


def check_group(group: str) -> None:
    """Raise SettingsError unless RocketMQ allows the group's name."""
    check_type("group", group, str, "a text")
    problem = group_name_problem(group)
    if problem is None and group in _FORBIDDEN_GROUPS:
        problem = f"the group {group} is reserved; choose a name of your own"
    if problem:
        raise SettingsError(problem)


def check_range(name: str, value: object, least: int, most: int) -> None:
    """Raise SettingsError unless the value is a whole number in the range."""
    if type(value) is not int or not least <= value <= most:
        raise SettingsError(
            f"{name} is {value!r}; it must be a whole number within {least} and {most}"
        )


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise SettingsError unless the value is one of the texts."""
    if value not in choices:
        wanted = ", ".join(map(repr, choices))
        raise SettingsError(f"{name} is {value!r}; it must be one of {wanted}")


def check_compression(kind: object) -> None:
    """Raise SettingsError unless bodies can be compressed so, their package included."""
    check_choice("compression", kind, tuple(PACK))
    PACK[str(kind)](b"", 5)


def check_seconds(name: str, value: object, *, may_be_zero: bool = False) -> None:
    """Raise SettingsError unless the value is a finite number, above 0, or also 0."""
    number = value if isinstance(value, int | float) and type(value) is not bool else -1
    if not (0 < number < inf or (may_be_zero and number == 0)):
        least = "0 or more" if may_be_zero else "more than 0"
        raise SettingsError(f"{name} is {value!r}; it must be a number of seconds, {least}")


def check_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise SettingsError, which says what is `wanted`, unless the value is of the type."""
    if not isinstance(value, kind):
        raise SettingsError(f"{name} is {value!r}; it must be {wanted}")
