"""The report as one HTML file with its plots; it opens offline, for Plotly's script is inside.

Draws figures; does not know where they come from.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cometmq.demo.flights.checks.measurements import Measurements
    from cometmq.demo.flights.checks.sampler import ResourceSample
    from cometmq.demo.flights.report import JobReport
    from cometmq.demo.flights.spark_tables import DelayTables

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
       color: #1b2733; }
h1, h2 { font-weight: 600; } h2 { margin-top: 2em; }
table { border-collapse: collapse; margin-bottom: 1.5em; }
td, th { padding: .2em .9em .2em 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: #16794c; } .wrong { color: #b3261e; font-weight: 600; }
"""
_MOMENT_COLOUR = "#b3261e"
_PLOT_HEIGHT, _LABEL_HEIGHT = 360, 16
"""Pixels."""


def write(
    path: Path, report: JobReport, found: Measurements, samples: Sequence[ResourceSample]
) -> None:
    """Write the page; times on it are seconds since the job began."""
    delays, began_s = found.delays, found.began_s
    moments = [(at_s - began_s, what) for at_s, what in found.moments]
    watched = [replace(sample, at_s=sample.at_s - began_s) for sample in samples]
    figures = [
        ("Mean delay of every day of the year", _delays_by_day(delays)),
        ("Mean departure delay by scheduled hour (New York)", _bars(
            delays.by_hour, "hour", "departure_delay", "minutes")),
        ("Mean arrival delay by airline", _bars(
            delays.by_airline, "airline", "arrival_delay", "minutes")),
        ("Mean departure delay in dry weather and in rain", _bars(
            [{**row, "weather": "rain" if row["rain"] else "dry"} for row in delays.by_rain],
            "weather", "departure_delay", "minutes")),
        ("Messages in each queue", _queue_balance(found.stored)),
        ("Consumer lag over time", _lag(watched, moments)),
        ("Memory of all processes", _memory(watched, moments)),
    ]  # fmt: skip
    body = [_summary(report)]
    for index, (title, figure) in enumerate(figures):
        body.append(f"<h2>{escape(title)}</h2>")
        body.append(_html(figure, with_script=index == 0))
    body.append(_airports(delays))
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>CometMQ: flights</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>",
        encoding="utf-8",
    )


def _summary(report: JobReport) -> str:
    result = (
        "<span class='ok'>all counts are right</span>"
        if report.passed
        else f"<span class='wrong'>{len(report.failed)} counts are wrong</span>"
    )
    checks = _table(
        ("check", "must be", "is", ""),
        (
            (
                check.name,
                f"{'≥ ' if check.at_least else ''}{check.expected:,}",
                f"{check.found:,}",
                "<span class='ok'>ok</span>"
                if check.passed
                else "<span class='wrong'>wrong</span>",
            )
            for check in report.checks
        ),
    )
    stages = _table(
        ("stage", "messages", "repeats", "seconds", "messages a second"),
        (
            (
                stage.name,
                f"{stage.messages:,}",
                f"{stage.repeats:,}",
                f"{stage.seconds:.1f}",
                f"{stage.per_second:,.0f}",
            )
            for stage in report.stages
        ),
    )
    latencies = _table(
        ("end to end", "p50 ms", "p99 ms", "messages"),
        (
            (one.name, f"{one.p50_ms:,}", f"{one.p99_ms:,}", f"{one.count:,}")
            for one in report.latencies
        ),
    )
    happened = "".join(f"<li>{escape(event)}</li>" for event in report.events)
    return (
        f"<h1>A year of flights through CometMQ: {result}</h1>"
        f"<p>{report.messages:,} messages in {report.seconds:.0f} s; all processes together held "
        f"{report.memory_peak_mib:,.0f} MiB at most.</p><ul>{happened}</ul>"
        f"<h2>Counts</h2>{checks}<h2>Speeds</h2>{stages}{latencies}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text and is escaped, the others are made here."""
    first, *others = (escape(title) for title in head)
    titles = f"<th>{first}</th>" + "".join(f"<th class='n'>{title}</th>" for title in others)
    lines = "".join(
        f"<tr><td>{escape(first)}</td>" + "".join(f"<td class='n'>{cell}</td>" for cell in rest)
        for first, *rest in rows
    )
    return f"<table><tr>{titles}</tr>{lines}</table>"


def _airports(delays: DelayTables) -> str:
    busiest = sorted(delays.by_destination, key=lambda row: -row["arrived"])[:20]
    rows = (
        (str(row["destination"]), f"{row['arrived']:,}", f"{row['arrival_delay'] or 0:.1f}")
        for row in busiest
    )
    return "<h2>The twenty busiest destinations</h2>" + _table(
        ("airport", "arrivals", "mean delay, minutes"), rows
    )


def _delays_by_day(delays: DelayTables) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    days = [row["date"] for row in delays.by_day]
    for name, column in (("departure", "departure_delay"), ("arrival", "arrival_delay")):
        figure.add_scatter(x=days, y=[row[column] for row in delays.by_day], name=name)
    return _laid_out(figure, "minutes")


def _bars(rows: Sequence[dict[str, Any]], key: str, value: str, unit: str) -> Any:
    import plotly.graph_objects as go

    names = [str(row[key]) for row in rows]
    return _laid_out(go.Figure(go.Bar(x=names, y=[row[value] for row in rows])), unit, key)


def _queue_balance(queues: dict[int, int]) -> Any:
    import plotly.graph_objects as go

    ids = sorted(queues)
    bars = go.Bar(x=[str(queue_id) for queue_id in ids], y=[queues[queue_id] for queue_id in ids])
    return _laid_out(go.Figure(bars), "messages", "queue id")


def _lag(samples: Sequence[ResourceSample], moments: Sequence[tuple[float, str]]) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for group in sorted({group for sample in samples for group in sample.lag}):
        known = [sample for sample in samples if group in sample.lag]
        figure.add_scatter(
            x=[sample.at_s for sample in known],
            y=[sample.lag[group] for sample in known],
            name=group,
        )
    return _marked(_laid_out(figure, "messages not yet committed", "seconds"), moments)


def _memory(samples: Sequence[ResourceSample], moments: Sequence[tuple[float, str]]) -> Any:
    import plotly.graph_objects as go

    line = go.Scatter(
        x=[sample.at_s for sample in samples], y=[sample.memory_mib for sample in samples]
    )
    return _marked(_laid_out(go.Figure(line), "MiB", "seconds"), moments)


def _marked(figure: Any, moments: Sequence[tuple[float, str]]) -> Any:
    """Draw a line at each moment; their labels stand one above the other over the plot."""
    for index, (at_s, what) in enumerate(moments):
        figure.add_vline(x=at_s, line_dash="dot", line_color=_MOMENT_COLOUR)
        figure.add_annotation(
            x=at_s,
            y=1,
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            yshift=index * _LABEL_HEIGHT,
            showarrow=False,
            text=escape(what),
        )
    margin_top = 20 + len(moments) * _LABEL_HEIGHT
    figure.update_layout(margin_t=margin_top, height=_PLOT_HEIGHT + margin_top)
    return figure


def _laid_out(figure: Any, unit: str, below: str = "") -> Any:
    figure.update_layout(
        template="plotly_white",
        height=_PLOT_HEIGHT,
        margin={"l": 60, "r": 20, "t": 20, "b": 60},
        yaxis_title=unit,
        xaxis_title=below or None,
    )
    return figure


def _html(figure: Any, *, with_script: bool) -> str:
    html: str = figure.to_html(full_html=False, include_plotlyjs=with_script)
    return html
