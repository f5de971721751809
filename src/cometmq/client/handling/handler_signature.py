"""Checks at `subscribe` that a handler can be called with a list of messages.

Owns the check and its sentences; what a handler returns or raises is `handler_call`'s. What has no
signature that Python can tell (some functions in C) passes.
Java: the compiler
"""

from __future__ import annotations

from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    isgeneratorfunction,
    signature,
)

from cometmq.client.handling.handler_call import is_async
from cometmq.errors import ClientError
from cometmq.model.message import MessageExt

_ONE_MESSAGE = (MessageExt, "MessageExt", "cometmq.MessageExt")


def check_handler(topic: str, handler: object, *, in_processes: bool = False) -> None:
    """Raise ClientError unless the handler can be called with a list of messages."""
    if not callable(handler):
        raise ClientError(f"subscribe to {topic}: {handler!r:.120} is no function")
    if problem := handler_problem(handler):
        name = getattr(handler, "__qualname__", None) or type(handler).__qualname__
        raise ClientError(f"subscribe to {topic}: the handler {name} {problem}")
    if in_processes and is_async(handler):
        raise ClientError(
            f"the handler of {topic} is async, which goes with tasks only: with "
            "workers='process' it must be a plain function"
        )


def handler_problem(handler: object) -> str | None:
    """Why the handler cannot be called with a list of messages; None where it can."""
    if problem := function_problem(handler, "a list of messages"):
        return problem
    try:
        known = signature(handler)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    bound = known.bind([])
    first = next(iter(bound.arguments), None)
    wanted = known.parameters[first] if first is not None else None
    if wanted is None or wanted.kind is Parameter.VAR_POSITIONAL:
        return None
    if wanted.annotation not in _ONE_MESSAGE:
        return None
    return (
        f"takes one message as {wanted.name}: a handler takes a list of messages, of which each is "
        f"a MessageExt, as in def handle({wanted.name}s: list[MessageExt])"
    )


def function_problem(function: object, takes: str) -> str | None:
    """Why it cannot be called with what a handler takes; None where it can."""
    if isinstance(function, type):
        return f"is a class: give an object of it, as in {function.__name__}()"
    called = (function, type(function).__call__)
    if any(isgeneratorfunction(one) or isasyncgenfunction(one) for one in called):
        return f"yields, so calling it does nothing: take {takes} and return"
    try:
        known = signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    try:
        known.bind([])
    except TypeError:
        return _arity_problem(known, takes)
    return None


def _arity_problem(known: Signature, takes: str) -> str:
    bare = [one.replace(annotation=Parameter.empty) for one in known.parameters.values()]
    shown = known.replace(parameters=bare, return_annotation=Signature.empty)
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    if any(one.kind in positional for one in bare):
        return f"needs more than {takes}: its parameters are {shown}"
    return f"takes no {takes.removeprefix('a ')}: its parameters are {shown}"
