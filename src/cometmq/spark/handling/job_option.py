"""The option of a streaming read that carries the handlers which run in its tasks.

Owns its name, its text, and the columns of such a read: rows that say what became of messages, in
place of the messages. Imports only the standard library, because every process that looks up data
sources loads it.
"""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.spark.handling.handler_settings import HandlerJob

OPTION = "handlers"
"""Set by `listen` alone; no user needs it."""
OUTCOME_DDL = "problem string"
"""A null for each message that a task took, so that Spark's progress counts messages; and, where
the task could not finish them, a row that says why."""


def text_of(job: HandlerJob) -> str:
    """The text of the option."""
    return base64.b64encode(pickle.dumps(job)).decode("ascii")


def take_job(given: Mapping[str, str]) -> tuple[HandlerJob | None, dict[str, str]]:
    """The job of the options of a read, if there is one, and the other options."""
    text = next((text for name, text in given.items() if name.lower() == OPTION), None)
    if text is None:
        return None, dict(given)
    job: HandlerJob = pickle.loads(base64.b64decode(text))
    return job, {name: text for name, text in given.items() if name.lower() != OPTION}
