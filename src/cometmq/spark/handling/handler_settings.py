"""What `listen` takes by name, checked, and the value that is pickled to Spark's workers.

Owns which settings of a push consumer hold on Spark, and which policies a micro-batch can carry
out; what the settings mean is said in `client/consumer`. Invariant: no policy of a job in order
makes a batch wait for one message longer than `wait_most_s`.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from cometmq.client.consumer.push_options import PushSettings, push_options
from cometmq.client.consumer.subscriptions import selector_of
from cometmq.client.producer.message_checks import check_topic
from cometmq.client.session.client_options import check_seconds
from cometmq.errors import ClientError, SettingsError
from cometmq.rules.failures.failure_policy import FailureAction, default_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.handling.handler_call import Handler
    from cometmq.client.session.client_options import ClientOptions
    from cometmq.model.message import MessageExt
    from cometmq.model.results import ConsumeFrom
    from cometmq.model.selector import MessageSelector
    from cometmq.rules.failures.circuit_breaker import BreakerLimits
    from cometmq.rules.failures.failure_policy import FailurePolicy, Policies
    from cometmq.spark.connection_security import ConnectionSecurity

_INSTEAD = (
    "say max_attempts=3 (then it becomes a dead letter), on_failure=OnFailure.retry(3, "
    "OnFailure.divert()) (then its key follows it there), or on_failure=OnFailure.retry(3, "
    "OnFailure.stop()) (then the query fails before it)"
)


_SECURITY = {
    "access_key": "accessKey",
    "secret_key": "secretKey",
    "security_token": "securityToken",
    "tls": "tls",
}
"""Settings of clients that are options here: a TLS context cannot be pickled, and Spark has one."""


class ListenSettings(TypedDict, total=False):
    """The settings of a push consumer that hold on Spark."""

    namesrv: str | Sequence[str] | None
    orderly: bool
    order: str
    key: str | Callable[[MessageExt], Hashable] | None
    without_key: str
    consume_threads: int
    batch_size: int
    max_attempts: int | None
    suspend_ms: int
    consume_timeout_s: float
    stop_timeout_s: float
    inflated_bytes_max: int
    consume_from: ConsumeFrom | str
    consume_timestamp_ms: int | None
    on_failure: FailurePolicy | Policies | None
    breaker: BreakerLimits | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerJob:
    """What a task needs to run the handler. Plain values only: it is pickled to the workers."""

    job_id: str
    """Another one for each query that is started: what a worker process keeps is kept under it."""
    topic: str
    pickled: bytes
    """The handler and the options of its consumer, pickled together by cloudpickle."""
    client: ClientOptions
    """Without keys and TLS."""
    security: ConnectionSecurity
    group: str
    is_in_order: bool
    wait_most_s: float

    def secured_client(self) -> ClientOptions:
        """The client's options with keys and TLS; raises SettingsError without a file of TLS."""
        return secured(self.client, self.security)


def secured(client: ClientOptions, security: ConnectionSecurity) -> ClientOptions:
    """The client's options with keys and TLS; raises SettingsError without a file of TLS."""
    return replace(client, **security.client_settings())


def consumer_settings(
    group: str, settings: ListenSettings
) -> tuple[ClientOptions, ConsumerOptions]:
    """The options that a push consumer would have; raises SettingsError or TypeError."""
    for name in settings:
        if name in _SECURITY:
            raise SettingsError(
                f"{name} is said in `source`, for the read and the handlers together: "
                f"source={{'{_SECURITY[name]}': ...}}"
            )
        if name in PushSettings.__annotations__ and name not in ListenSettings.__annotations__:
            raise SettingsError(f"{name} has no meaning for handlers on Spark: leave it out")
    given: Any = dict(settings)
    return push_options(group, given, os.environ, may_divert=True)


def handler_job(
    client: ClientOptions,
    security: ConnectionSecurity,
    options: ConsumerOptions,
    topic: str,
    handler: Handler | None,
    wait_most_s: float,
) -> HandlerJob:
    """Check what is to run, and pickle it. Raises SettingsError or ClientError."""
    check_topic(topic)
    if handler is None or not callable(handler):
        raise ClientError(f"listen to {topic}: {handler!r} is no function of a list of messages")
    check_seconds("wait_most_s", wait_most_s)
    if options.is_locking:
        _check_policies(options, wait_most_s)
    elif diverts(options):
        raise SettingsError(
            "OnFailure.divert keeps the order of a key, and order='none' has none: say order='key' "
            "or order='queue', or another policy"
        )
    return HandlerJob(
        job_id=uuid4().hex,
        topic=topic,
        pickled=_pickled(handler, options),
        client=client,
        security=security,
        group=options.group,
        is_in_order=options.is_locking,
        wait_most_s=wait_most_s,
    )


def diverts(options: ConsumerOptions) -> bool:
    """Whether a policy may divert keys."""
    return any(one.action is FailureAction.DIVERT for one in (options.on_failure or {}).values())


def filter_options(topic: str, expression: str | MessageSelector) -> Mapping[str, str]:
    """The option of the source that an expression means; raises ClientError when it means none."""
    selector = selector_of(topic, expression)
    return {"sql" if selector.expression_type == "SQL92" else "tags": selector.expression}


def _check_policies(options: ConsumerOptions, wait_most_s: float) -> None:
    """Refuse in order what would make a batch wait at one message for ever, or too long."""
    known = dict(options.on_failure or {})
    if not known.keys() & {Exception, BaseException}:
        known[Exception] = default_policy(options.max_attempts)
    for kind, policy in known.items():
        if policy.action is FailureAction.NONE:
            raise SettingsError(
                f"with order={options.order!r} a message that fails with {kind.__name__} would be "
                f"tried for ever, and a micro-batch cannot wait for it: {_INSTEAD}"
            )
        if not policy.pauses_within(int(wait_most_s * 1000), options.suspend_ms):
            raise SettingsError(
                f"the policy for {kind.__name__} pauses for more than wait_most_s={wait_most_s:g} "
                f"in all before its {policy.after} attempts are used, and a micro-batch cannot "
                "wait so long for one message: fewer attempts, a smaller pause_ms or suspend_ms, "
                "or a larger wait_most_s"
            )


def _pickled(handler: Handler, options: ConsumerOptions) -> bytes:
    """Together, so that types of exceptions are the same ones in the handler and its policies."""
    from pyspark import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps((handler, options))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise SettingsError(
            f"the handler, its key function or a sink cannot be sent to Spark's workers: {error}; "
            "make connections and locks inside of it, when they are first used"
        ) from error
    return pickled
