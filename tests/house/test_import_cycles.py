"""No module imports itself through others, not even for types only."""

from __future__ import annotations

import ast
from functools import cache

from house.tree import MODULES, Module


def imported_by(module: Module) -> set[str]:
    """The names of the modules that one imports anywhere, `if TYPE_CHECKING` included."""
    names = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    stems = {name.removeprefix("cometmq.").replace(".", "/") for name in names}
    paths = {stem + end for stem in stems for end in (".py", "/__init__.py")}
    return paths & {each.name for each in MODULES} - {module.name}


@cache
def graph() -> dict[str, set[str]]:
    return {module.name: imported_by(module) for module in MODULES}


def reached(start: str) -> set[str]:
    """Every module that one imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph()[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def test_no_module_imports_itself_through_others_even_for_types():
    reach = {name: reached(name) for name in graph()}
    circles = {
        frozenset(other for other in names if name in reach[other])
        for name, names in reach.items()
        if name in names
    }
    assert not circles
