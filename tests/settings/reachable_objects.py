"""Everything that a running role holds: for tests that look for what it should have let go."""

from __future__ import annotations

from functools import partial
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def reachable(root: object, *, but: tuple[type, ...] = ()) -> Iterator[tuple[str, object, object]]:
    """Path, holder and value of all that `root` holds: through our classes, containers, callables.

    What objects of the classes in `but` hold is left out.
    """
    seen: set[int] = set()
    found: list[tuple[str, object, object]] = [(type(root).__name__, None, root)]
    while found:
        path, holder, value = found.pop()
        yield path, holder, value
        if id(value) in seen or isinstance(value, but):
            continue
        seen.add(id(value))
        found += [(f"{path}{name}", value, child) for name, child in _children(value)]


def _children(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, each in list(value.items()):
            yield f"[{key!r:.40}]", each
    elif isinstance(value, list | tuple | set | frozenset):
        for index, each in enumerate(list(value)):
            yield f"[{index}]", each
    elif isinstance(value, partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            yield from _content(cell)
    elif type(value).__module__.startswith("cometmq."):
        yield from _attributes(value)


def _content(cell: CellType) -> Iterator[tuple[str, object]]:
    try:
        yield ".closure", cell.cell_contents
    except ValueError:  # not bound yet
        return


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    names = set(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        names.update(getattr(kind, "__slots__", ()))
    for name in names:
        if not name.startswith("__") and hasattr(value, name):
            yield f".{name}", getattr(value, name)
