"""One result of a check: what was looked at, whether it is well, and what to do if not."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a finding is: a fault keeps messages from flowing, a notice may be on purpose."""

    OK = "ok"
    NOTICE = "notice"
    FAULT = "fault"


class ClusterFinding(NamedTuple):
    """What a check says about one subject; `advice` is empty when all is well."""

    check: str
    severity: Severity
    subject: str
    what: str
    advice: str = ""


def ok(check: str, subject: str, what: str) -> ClusterFinding:
    """All is well."""
    return ClusterFinding(check, Severity.OK, subject, what)


def notice(check: str, subject: str, what: str, advice: str) -> ClusterFinding:
    """Something a user would want to know that may be on purpose."""
    return ClusterFinding(check, Severity.NOTICE, subject, what, advice)


def fault(check: str, subject: str, what: str, advice: str) -> ClusterFinding:
    """Something that keeps messages from being sent or consumed, or soon will."""
    return ClusterFinding(check, Severity.FAULT, subject, what, advice)
