"""What is done with a message that fails: retried or given up, by type of error and topic.

Owns the policies and their decisions; knows nothing of who carries them out (a push consumer, a
Spark job), time and the network. Invariant: a decision depends on nothing but the policy, the
error's type, the number of failures and what the handler asked for.
Java: ConsumeConcurrentlyStatus, ConsumeOrderlyStatus (there the handler decides each time)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from warnings import warn

from cometmq.errors import SettingsError
from cometmq.rules.failures.retry_policy import (
    SUSPEND_MS_MAX,
    SUSPEND_MS_MIN,
    backoff_s,
    clamp_suspend_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

D = TypeVar("D")
AFTER_MAX = 1_000_000


def _check(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise SettingsError(f"{name} is {value!r}; it must be within {least} and {most}")


class FailureAction(Enum):
    """What is done with a message that has failed often enough."""

    NONE = "never given up"
    DEAD_LETTER = "a dead letter of the group"
    SKIP = "counted as done"
    STOP = "the consumer stops before it"
    STORE = "a row of the user's own table"
    DIVERT = "a dead letter of the group, and all later messages of its key after it"
    PARK = "set apart in the group's parking topic, and all later messages of its key after it"


AT_BOUNDS = ("block", "dead_letter", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkBounds:
    """How many messages of a queue may be parked, how long one may be, and what follows then.

    `at_bound`: "block" (messages of parked keys wait), "dead_letter" (the key's parked messages
    become dead letters, in order, and it goes on), "stop" (the consumer stops).
    """

    count: int = 10_000
    age_s: int = 86_400
    at_bound: str = "block"

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        _check("count", self.count, 1, 1_000_000)
        _check("age_s", self.age_s, 1, 31_536_000)
        if self.at_bound not in AT_BOUNDS:
            raise SettingsError(
                f"at_bound is {self.at_bound!r}; it must be one of {', '.join(AT_BOUNDS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """After how many failed calls what is done with a message; made by the functions below.

    `pause_ms` lies between two attempts and doubles with each failure up to `pause_most_ms`; None
    is the consumer's `suspend_ms`, the same each time.
    """

    action: FailureAction
    after: int = 1
    pause_ms: int | None = None
    pause_most_ms: int | None = None
    sink: Callable[..., object] | None = None
    bounds: ParkBounds | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        _check("after", self.after, 1, AFTER_MAX)
        for name in ("pause_ms", "pause_most_ms"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, SUSPEND_MS_MIN, SUSPEND_MS_MAX)
        if self.action is FailureAction.STORE and not callable(self.sink):
            raise SettingsError(
                f"the sink is {self.sink!r}; it must be a function of (message, failure), or what "
                "a cometmq.TableSink"
            )

    def pause_after(self, failures: int, default_ms: int) -> int:
        """How long to pause after so many failures, within 10 ms and 30 s."""
        if self.pause_ms is None:
            return clamp_suspend_ms(default_ms)
        most_ms = SUSPEND_MS_MAX if self.pause_most_ms is None else self.pause_most_ms
        return clamp_suspend_ms(int(backoff_s(max(1, failures), self.pause_ms, most_ms)))

    def pauses_within(self, most_ms: int, default_ms: int) -> bool:
        """Whether all pauses of one message, in order, take at most so long together."""
        if self.action is FailureAction.NONE:
            return False
        left_ms = most_ms
        for failures in range(1, self.after):
            left_ms -= self.pause_after(failures, default_ms)
            if left_ms < 0:
                return False
        return True

    @property
    def ending(self) -> FailureAction:
        """The old name of `action`; deprecated."""
        warn("FailurePolicy.ending is now action", DeprecationWarning, stacklevel=2)
        return self.action

    def rest_ms(self, failures: int, default_ms: int) -> int:
        """Return what `pause_after` does, under its old name; deprecated."""
        warn("FailurePolicy.rest_ms is now pause_after", DeprecationWarning, stacklevel=2)
        return self.pause_after(failures, default_ms)


class FailureDecision(NamedTuple):
    """What to do with a message now: pause and try it again (NONE), or carry out the action."""

    action: FailureAction
    pause_ms: int = 0
    policy: FailurePolicy | None = None


Policies = Mapping[type[BaseException], FailurePolicy]
"""By the type of the error; a policy for `Exception` is for all that have none of their own."""


class OnFailure:
    """The failure policies to choose from, as in `OnFailure.retry(5)`."""

    @staticmethod
    def block(*, pause_ms: int | None = None, pause_most_ms: int | None = None) -> FailurePolicy:
        """Try the message for ever; what comes after it in its order waits. RocketMQ's way."""
        return FailurePolicy(
            action=FailureAction.NONE, pause_ms=pause_ms, pause_most_ms=pause_most_ms
        )

    @staticmethod
    def retry(
        times: int,
        then: FailurePolicy | None = None,
        *,
        pause_ms: int | None = None,
        pause_most_ms: int | None = None,
    ) -> FailurePolicy:
        """Try the message `times` more, then do as `then` says: make it a dead letter by default.

        The handler is called `times + 1` times.
        """
        _check("times", times, 0, AFTER_MAX - 1)
        last = FailurePolicy(action=FailureAction.DEAD_LETTER) if then is None else then
        if not isinstance(last, FailurePolicy):
            raise SettingsError(f"then is {then!r}; it must be a policy, as OnFailure.skip()")
        return replace(
            last,
            after=min(AFTER_MAX, times + last.after),
            pause_ms=last.pause_ms if pause_ms is None else pause_ms,
            pause_most_ms=last.pause_most_ms if pause_most_ms is None else pause_most_ms,
        )

    @staticmethod
    def dead_letter(*, after: int = 1) -> FailurePolicy:
        """Make it a dead letter of the group after so many failures, and go on."""
        return FailurePolicy(action=FailureAction.DEAD_LETTER, after=after)

    @staticmethod
    def skip(*, after: int = 1) -> FailurePolicy:
        """Count it as done after so many failures, and go on; it is logged."""
        return FailurePolicy(action=FailureAction.SKIP, after=after)

    @staticmethod
    def stop(*, after: int = 1) -> FailurePolicy:
        """Stop the consumer after so many failures; the message comes again at the next start."""
        return FailurePolicy(action=FailureAction.STOP, after=after)

    @staticmethod
    def store(sink: Callable[..., object], *, after: int = 1) -> FailurePolicy:
        """Give it to `sink(message, failure)` after so many failures, and go on once that returns.

        A sink that raises is called again, for ever: the offset does not move before the row is
        there. It may be called twice for one message (at least once, as the handler).
        """
        return FailurePolicy(action=FailureAction.STORE, after=after, sink=sink)

    @staticmethod
    def divert(*, after: int = 1) -> FailurePolicy:
        """Make it a dead letter after so many failures, and so all later messages of its key.

        They follow it there in their order and reach no handler, until the group's offset in its
        dead-letter queue is set beyond the letters. For handlers on Spark, in order.
        """
        return FailurePolicy(action=FailureAction.DIVERT, after=after)

    @staticmethod
    def park(
        *, after: int = 1, count: int = 10_000, age_s: int = 86_400, at_bound: str = "block"
    ) -> FailurePolicy:
        """Park its key after so many failures: it and all later messages of the key are set apart.

        They go to the group's parking topic in their order, and reach the handler when an operator
        releases them (`cometmq parked`). At most `count` messages of a queue are parked, and none
        for longer than `age_s` seconds, which must be less than the broker keeps messages;
        `at_bound` says what follows then: "block", "dead_letter" or "stop". For consumers by key.
        """
        bounds = ParkBounds(count=count, age_s=age_s, at_bound=at_bound)
        return FailurePolicy(action=FailureAction.PARK, after=after, bounds=bounds)


BLOCK = OnFailure.block()


def default_policy(max_attempts: int | None) -> FailurePolicy:
    """The policy of consumers in order: block, or a dead letter after `max_attempts`."""
    return BLOCK if max_attempts is None else OnFailure.dead_letter(after=max_attempts)


def policies(
    given: FailurePolicy | Policies | None, *, may_divert: bool = False, may_park: bool = False
) -> Policies | None:
    """What a user gave, checked: one policy for all errors, or one a type. Raises SettingsError.

    `may_divert`, `may_park`: whether who carries them out can divert or park keys.
    """
    known = _policies(given)
    if (
        known
        and not may_divert
        and any(one.action is FailureAction.DIVERT for one in known.values())
    ):
        raise SettingsError(
            "OnFailure.divert must be given to cometmq.spark.listen: a push consumer cannot divert "
            "a key; say OnFailure.dead_letter(), or OnFailure.stop()"
        )
    if not may_park and park_bounds(known) is not None:
        raise SettingsError(
            "OnFailure.park keeps the order of keys: it needs a push consumer with order='key'; "
            "cometmq.spark.listen has OnFailure.divert()"
        )
    return known


def park_bounds(known: Policies | None) -> ParkBounds | None:
    """The bounds of the policy that parks, the first of several; None where none does."""
    return next((one.bounds for one in (known or {}).values() if one.bounds is not None), None)


def _policies(given: FailurePolicy | Policies | None) -> Policies | None:
    if given is None:
        return None
    if isinstance(given, FailurePolicy):
        return {BaseException: given}
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"on_failure is {given!r}; it must be a policy as OnFailure.retry(5), or a dict from "
            "exception types to policies"
        )
    for kind, policy in given.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise SettingsError(f"on_failure has {kind!r}, which is no type of exception")
        if not isinstance(policy, FailurePolicy):
            raise SettingsError(f"on_failure[{kind.__name__}] is {policy!r}, which is no policy")
    return dict(given)


def policy_of(known: Policies, kind: type[BaseException], default: D) -> FailurePolicy | D:
    """The policy of the nearest class among the error's own and those it derives from."""
    return next((known[base] for base in kind.__mro__ if base in known), default)


def decide(
    policy: FailurePolicy, failures: int, default_ms: int, *, is_outage: bool
) -> FailureDecision:
    """What to do with a message that has failed `failures` times, the last one included.

    `default_ms` is the pause that the handler or the consumer asks for. During an outage no message
    is given up, since the fault is not the message's.
    """
    if policy.action is FailureAction.NONE or failures < policy.after or is_outage:
        return FailureDecision(FailureAction.NONE, policy.pause_after(failures, default_ms), policy)
    return FailureDecision(policy.action, 0, policy)
