"""The dashboard asks for metrics and labels that a broker and a name server show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cometmq.broker.metrics import exported_metrics, metric_definitions
from cometmq.metrics.registry import Metric, MetricKind
from cometmq.monitoring import monitoring_server
from cometmq.namesrv import name_server_figures

FILE = Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json"
NODE = {"cluster", "node_type", "node_id"}
NAME = re.compile(r"\b(?:rocketmq|cometmq)_\w+")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def known() -> dict[str, set[str]]:
    """The labels of each series by its name."""
    modules = (metric_definitions, exported_metrics, name_server_figures, monitoring_server)
    found = {}
    for each in (value for module in modules for value in vars(module).values()):
        if isinstance(each, Metric):
            is_histogram = each.kind is MetricKind.HISTOGRAM
            labels = {*each.labels, *NODE, *({"le"} if is_histogram else ())}
            found[f"{each.name}_bucket" if is_histogram else each.name] = labels
    return found


def expressions() -> list[str]:
    board = dashboard()
    asked = [target["expr"] for each in board["panels"] for target in each.get("targets", ())]
    return asked + [each["definition"] for each in board["templating"]["list"][1:]]


def test_every_metric_and_label_that_is_asked_for_is_shown() -> None:
    names = known()
    for text in expressions():
        (*_, name), more = NAME.findall(text), re.findall(r"(\w+)=", text)
        assert name in names, text
        used = {*more, *re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", text)))}
        assert used <= names[name], (text, used - names[name])


def test_panels_lie_side_by_side_and_have_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({each["id"] for each in panels}) == len(panels) > 20
    taken = set()
    for each in panels:
        place = each["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, each["title"]
                assert x < 24
                taken.add((x, y))
