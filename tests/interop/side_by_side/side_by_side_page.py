"""The page with everything side by side, written by the run that saw it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from interop.side_by_side.exchanges import Exchange
    from interop.side_by_side.reasons import Difference, Reasons
    from interop.side_by_side.recording_proxy import Heard

Found = dict[str, list["Difference"]]
_PATH = re.compile(r"(?<![\w.:/<>-])/(?:[\w.+@-]+/)*[\w.+@-]+")
_ADDR = re.compile(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b")
RELEASE = "5.5.0"


def scrubbed(page: str) -> str:
    """The page without paths and addresses of the machine that it was made on."""
    return _ADDR.sub("<addr>", _PATH.sub("<path>", page))


def name_of(code: int) -> str:
    """The code with its name."""
    known = code in RequestCode._value2member_map_
    return f"{code} {RequestCode(code).name}" if known else str(code)


def requests(exchanges: Mapping[str, Exchange], found: Found, reasons: Reasons) -> list[str]:
    """One row a request code: how many exchanges, how many alike, what differs and why."""
    by_code: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name, exchange in exchanges.items():
        by_code[exchange.request.code, exchange.to].append(name)
    lines = ["| code | asked of | exchanges | alike | what differs: why |", "|---|---|---|---|---|"]
    for (code, to), names in sorted(by_code.items()):
        alike = sum(not found[name] for name in names)
        reasons_text = differences_text([each for name in names for each in found[name]], reasons)
        lines.append(f"| {name_of(code)} | {to} | {len(names)} | {alike} | {reasons_text} |")
    return lines


def differences_text(differences: Iterable[Difference], reasons: Reasons) -> str:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in differences:
        what = f"{each.name.partition('/')[2] or each.name} {_short(each)}"
        by_reason[reasons.of(each) or "**unexplained**"].append(what)
    return "<br>".join(f"{_cell(_some(what))}: {why}" for why, what in by_reason.items())


def _some(what: list[str]) -> str:
    more = f" and {len(what) - 3} more" if len(what) > 3 else ""
    return "; ".join(what[:3]) + more


def _short(each: Difference) -> str:
    return f"({each.path} {each.theirs[:24]} → {each.ours[:24]})"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "¦").replace("`", "'").replace("\n", " ") + "`"


def pairings(heard: Mapping[tuple[str, str], list[Heard]], lists: list[tuple[str, Found, Reasons]]):
    """One row a code and way: the answers in each of the four pairings, what differs and why."""
    columns = list(heard)
    rows: dict[tuple[int, str], dict[tuple[str, str], list[Heard]]] = defaultdict(dict)
    for pair, some in heard.items():
        for each in some:
            rows[each.request.code, each.way].setdefault(pair, []).append(each)
    head = " | ".join(f"{client} at {broker}" for client, broker in columns)
    lines = [f"| code | way | {head} | what differs: why |", "|---" * (len(columns) + 3) + "|"]
    for (code, way), cells in sorted(rows.items()):
        reasons_text = [
            f"{client}: {differences_text(found.get(f'{code} {way}', []), reasons)}"
            for client, found, reasons in lists
            if found.get(f"{code} {way}")
        ]
        seen = " | ".join(_seen(cells.get(pair, [])) for pair in columns)
        lines.append(f"| {name_of(code)} | {way} | {seen} | {'<br>'.join(reasons_text)} |")
    return lines


def _seen(some: list[Heard]) -> str:
    """The kinds of answers, without counts: those are a matter of timing."""
    codes = sorted({str(each.answer.code) for each in some if each.answer is not None}, key=int)
    silent = ["one-way"] if any(each.request.is_oneway for each in some) else []
    return ", ".join([*codes, *silent]) or "-"


def commands(found: Found, reasons: Reasons) -> list[str]:
    """One row a command of mqadmin."""
    lines = ["| command | output | what differs: why |", "|---|---|---|"]
    for name, differences in found.items():
        state = "differs" if differences else "alike"
        why = sorted({reasons.of(each) or "**unexplained**" for each in differences})
        lines.append(f"| {_cell(name)} | {state} | {'<br>'.join(why)} |")
    return lines
