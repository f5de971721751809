"""Tables of lists or numbers as JSON, made piece by piece, for those that are very large.

Pure; asks for each value only when it is encoded, so a table may change meanwhile. The bytes are
those that `JsonFile.encode` (a file) or `fastjson.dumps` (an answer) would make at once.
Java: none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cometmq.store.json_file import JsonFile
from cometmq.wire import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Value = dict[int, int] | list[str] | None
    Table = tuple[Iterable[str], Callable[[str], Value]]

_PIECE = 200
"""Values of one piece: about 0.1 ms."""


def table_pieces(
    before: Mapping[str, object], tables: Mapping[str, Table], as_file: bool
) -> Iterator[str]:
    """The object with the fields `before`, not empty, and then these tables.

    A table is its names and what gives the value of each; None where it has gone.
    """
    line = "\n" if as_file else ""
    if as_file:
        yield JsonFile.encode(dict(before)).decode().removesuffix("\n}")
    else:
        yield fastjson.dumps(dict(before)).decode()[:-1]
    for name, (keys, value_of) in tables.items():
        yield f",{line}{_tab(as_file, 1)}{json.dumps(name)}:{{"
        mark = ""
        for key in keys:
            value = value_of(key)
            if value is not None:
                yield f"{mark}{line}{_tab(as_file, 2)}{_quoted(key, as_file)}:"
                yield from _value_pieces(value, as_file)
                mark = ","
        yield f"{line}{_tab(as_file, 1)}}}" if mark else "}"
    yield f"{line}}}"


def _value_pieces(value: dict[int, int] | list[str], as_file: bool) -> Iterator[str]:
    begin, end = "{}" if isinstance(value, dict) else "[]"
    line = f"\n{_tab(as_file, 3)}" if as_file else ""
    quote = '"' if as_file else ""
    rest = list(value.items()) if isinstance(value, dict) else value
    yield begin
    for at in range(0, len(rest), _PIECE):
        texts = [
            f"{line}{_quoted(each, as_file)}"
            if isinstance(each, str)
            else f"{line}{quote}{each[0]}{quote}:{each[1]}"
            for each in rest[at : at + _PIECE]
        ]
        yield ("," if at else "") + ",".join(texts)
    yield f"\n{_tab(as_file, 2)}{end}" if as_file and rest else end


def _tab(as_file: bool, depth: int) -> str:
    return "\t" * depth if as_file else ""


def _quoted(text: str, as_file: bool) -> str:
    return json.dumps(text, ensure_ascii=False) if as_file else fastjson.dumps(text).decode()
