"""Turns errors of Spark into one sentence.

Spark wraps what a task or the planner raises into pages of traces. Where the cause is an error of
CometMQ, its sentence is what the user needs.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cometmq import errors
from cometmq.errors import CometError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLED = "An error occurred while calling"
_OURS = re.compile(r"^\s*(?:\[\w+\] )?cometmq\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def spark_errors_translated() -> Iterator[None]:
    """Raise a CometError in place of an error of Spark.

    It has the type that was raised in Spark's processes where that can be made from a sentence
    alone; else it says the first line of Spark's.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _translated(str(error)) from error


def _translated(text: str) -> CometError:
    found = _OURS.findall(text)
    if found:
        name, sentence = found[-1]
        kind = getattr(errors, name, CometError)
        has_own_arguments = kind.__init__ is not CometError.__init__
        return CometError(sentence) if has_own_arguments else kind(sentence)
    lines = text.strip().split("\n")
    first = lines[1].removeprefix(": ") if lines[0].startswith(_CALLED) else lines[0]
    return CometError(f"Spark failed: {first}")
