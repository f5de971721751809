"""The part of Prometheus's language that our alert rules use, over scrapes that a test made.

Differs from Prometheus where it extrapolates: `increase` and `rate` are of the scrapes that there
are. `promtool` checks the rules' syntax where it is installed. Anything else is an error here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
UNITS = {"s": 1, "m": 60, "h": 3600}
TOKEN = re.compile(
    r'\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<word>[a-zA-Z_]\w*)|(?P<text>"[^"]*")'
    r"|(?P<span>\[\d+[smh]\])|(?P<sign>==|!=|[><(){},=]))"
)
LATEST_S = 300.0
"""A series that no scrape within so much time has is gone."""


class Scrape(NamedTuple):
    """What was read at one time."""

    at_s: float
    series: dict[str, Vector]


def scraped(at_s: float, text: str, **target: str) -> Scrape:
    """A scrape, with the labels that Prometheus adds."""
    series: dict[str, Vector] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series[sample.name][frozenset({**sample.labels, **target}.items())] = sample.value
    series["up"][frozenset(target.items())] = 1.0
    return Scrape(at_s, dict(series))


def failed(at_s: float, **target: str) -> Scrape:
    """A scrape that nobody answered."""
    return Scrape(at_s, {"up": {frozenset(target.items()): 0.0}})


class Evaluation:
    """One expression at one time over the scrapes until then."""

    def __init__(self, text: str, scrapes: list[Scrape], at_s: float) -> None:
        self._scrapes = [scrape for scrape in scrapes if scrape.at_s <= at_s]
        self._at_s = at_s
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            assert found, f"not of this language: {text[at:]!r}"
            self._tokens.append((str(found.lastgroup), found.group(str(found.lastgroup))))
            at = found.end()
        self.result = self._set_operations()
        assert not self._tokens, f"more than one expression: {self._tokens}"

    def _peek(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def _take(self, wanted: str = "") -> str:
        _, text = self._tokens.pop(0)
        assert not wanted or text == wanted, f"{text} where {wanted} must be"
        return text

    def _names(self) -> list[str]:
        self._take("(")
        names = [self._take()]
        while self._peek() == ",":
            self._take()
            names.append(self._take())
        self._take(")")
        return names

    def _set_operations(self) -> Vector:
        left = self._comparison()
        while self._peek() in ("unless", "and"):
            keeps = self._take() == "and"
            on: list[str] | None = None
            if self._peek() == "on":
                self._take()
                on = self._names()
            right = {_only(labels, on) for labels in self._comparison()}
            left = {key: value for key, value in left.items() if (_only(key, on) in right) == keeps}
        return left

    def _comparison(self) -> Vector:
        left = self._primary()
        compare: dict[str, Callable[[float, float], bool]] = {
            ">": float.__gt__,
            "<": float.__lt__,
            "==": float.__eq__,
        }
        if self._peek() in compare:
            holds, limit = compare[self._take()], float(self._take())
            left = {labels: value for labels, value in left.items() if holds(float(value), limit)}
        return left

    def _primary(self) -> Vector:
        name = self._take()
        if name == "(":
            inner = self._set_operations()
            self._take(")")
            return inner
        if name in ("sum", "max", "count"):
            self._take("by")
            return _aggregated(name, self._names(), self._in_brackets())
        if name == "histogram_quantile":
            self._take("(")
            share = float(self._take())
            self._take(",")
            buckets = self._set_operations()
            self._take(")")
            return _quantile(share, buckets)
        if name in ("increase", "rate", "max_over_time"):
            self._take("(")
            span_s, found = self._range()
            self._take(")")
            if name == "max_over_time":
                return {labels: max(values) for labels, values in found.items()}
            grown = {key: _increase(values) for key, values in found.items() if len(values) > 1}
            return {key: value / (span_s if name == "rate" else 1) for key, value in grown.items()}
        return self._latest(name, self._selector())

    def _in_brackets(self) -> Vector:
        self._take("(")
        found = self._set_operations()
        self._take(")")
        return found

    def _selector(self) -> Labels:
        wanted = set()
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                name = self._take()
                self._take("=")
                wanted.add((name, self._take().strip('"')))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        return frozenset(wanted)

    def _latest(self, name: str, wanted: Labels) -> Vector:
        for scrape in reversed(self._scrapes):
            if scrape.at_s > self._at_s - LATEST_S:
                return {k: v for k, v in scrape.series.get(name, {}).items() if wanted <= k}
        return {}

    def _range(self) -> tuple[float, dict[Labels, list[float]]]:
        name, wanted = self._take(), self._selector()
        span = self._take().strip("[]")
        span_s = int(span[:-1]) * UNITS[span[-1]]
        found: dict[Labels, list[float]] = defaultdict(list)
        for scrape in self._scrapes:
            if scrape.at_s > self._at_s - span_s:
                for labels, value in scrape.series.get(name, {}).items():
                    if wanted <= labels:
                        found[labels].append(value)
        return span_s, found


def _only(labels: Labels, names: list[str] | None) -> Labels:
    return labels if names is None else frozenset(pair for pair in labels if pair[0] in names)


def _increase(values: list[float]) -> float:
    """What a counter grew by; it begins at 0 again with its process."""
    pairs = pairwise(values)
    return sum(after - before if after >= before else after for before, after in pairs)


def _aggregated(how: str, names: list[str], vector: Vector) -> Vector:
    groups: dict[Labels, list[float]] = defaultdict(list)
    for labels, value in vector.items():
        groups[_only(labels, names)].append(value)
    by = {"sum": sum, "max": max, "count": len}[how]
    return {labels: float(by(values)) for labels, values in groups.items()}


def _quantile(share: float, buckets: Vector) -> Vector:
    """The bound of the bucket that the quantile lies in; nothing where nothing was counted."""
    groups: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        bound = float(dict(labels)["le"])
        groups[frozenset(pair for pair in labels if pair[0] != "le")].append((bound, count))
    found = {}
    for key, counts in groups.items():
        counts.sort()
        total = counts[-1][1]
        if total > 0:
            found[key] = next(bound for bound, count in counts if count >= share * total)
    return found
