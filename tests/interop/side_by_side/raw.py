"""Send all requests to a pair of servers, write down what was answered, and replay it.

A recording is one JSON object a line: what was done, with requests and answers as the text of
their header and the hex of their body. Requests that fill megabytes are left out.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from cometmq.wire.command import Command
from cometmq.wire.frame import Frame, FrameDecoder
from interop.side_by_side import admin_requests, client_requests, group_requests
from interop.side_by_side.exchanges import Exchange, Talk, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

HIDDEN = "/tmp/run"
"""What a recording says instead of the place where its servers ran."""
SECTIONS: tuple[Callable[[Talk], None], ...] = (
    *client_requests.SECTIONS,
    *group_requests.SECTIONS,
    *admin_requests.SECTIONS,
)


def run(namesrv: str, broker: str) -> Talk:
    """All sections of requests in order."""
    with Talk(namesrv, broker) as talk:
        for section in SECTIONS:
            section(talk)
    return talk


def write(talk: Talk, path: Path, folder: Path) -> None:
    """Keep what was said as a recording, without the `folder` that the servers ran in."""
    text = "\n".join(
        json.dumps(line, ensure_ascii=True) for line in map(_line, talk.events) if line
    )
    path_text = str(folder)
    text = text.replace(path_text, HIDDEN).replace(path_text.encode().hex(), HIDDEN.encode().hex())
    path.write_text(text + "\n")


def _line(event: dict[str, Any]) -> dict[str, Any] | None:
    exchange = event.get("exchange")
    if exchange is None:
        return event
    if not exchange.kept:
        return None
    line: dict[str, Any] = {"do": event["do"], "name": exchange.name}
    if event["do"] == "send":
        line |= {"to": exchange.to, "on": exchange.on, "request": _packed(exchange.request)}
        if exchange.links:
            line["links"] = exchange.links
    elif event["do"] == "collect":
        line["answer"] = _packed(exchange.answer)
    else:
        line |= {"on": exchange.on, "code": exchange.request.code}
        line |= {"push": _packed(exchange.answer), "reply": _hex(event["reply"])}
    return line


def _packed(command: Command | None) -> dict[str, str] | None:
    if command is None:
        return None
    (frame,) = FrameDecoder().feed(command.encode())
    packed = {"header": bytes(frame.header).decode()}
    if command.body:
        packed["body"] = bytes(command.body).hex()
    return packed


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def unpacked(packed: dict[str, str] | None) -> Command | None:
    """A command out of a recording."""
    if packed is None:
        return None
    body = bytes.fromhex(packed.get("body", ""))
    return Command.decode(Frame(0, packed["header"].encode(), body))


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a recording."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def replay(lines: Iterable[dict[str, Any]], talk: Talk) -> None:
    """Fire the recorded requests, with values out of this run's answers where they are linked."""
    for line in lines:
        if line["do"] == "pause":
            time.sleep(line["least"])
        elif line["do"] == "hang_up":
            talk.hang_up(line["on"], line["to"])
        elif line["do"] == "collect":
            talk.collect(talk.exchanges[line["name"]])
        elif line["do"] == "pushed":
            reply = None if line["reply"] is None else bytes.fromhex(line["reply"])
            talk.pushed(line["name"], line["code"], on=line["on"], answer=reply)
        else:
            request = unpacked(line["request"])
            assert request is not None
            request.ext |= values(line.get("links", {}), talk.exchanges)
            talk.send(Exchange(line["name"], line["to"], line["on"], request))
