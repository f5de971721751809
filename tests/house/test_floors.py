"""Imports: the floors by import-linter, and what a bare Python can import."""

import ast
import os
import subprocess
import sys

import cometmq
from house.tree import MODULES, ROOT, SOURCE

STANDARD_LIBRARY_ONLY = (
    *("errors", "metrics", "model", "rules", "settings", "wire", "runtime"),
    *("store", "net", "broker", "client", "namesrv", "testing", "compat"),
)


def test_import_floors_are_kept(tmp_path):
    code = "from importlinter.cli import lint_imports_command as main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--cache-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other_in_a_circle_not_even_for_types():
    left = {module: _imports(module) for module in MODULES if module.name != "__init__.py"}
    while left:
        names = {_dotted(module) for module in left}
        free = [module for module, imported in left.items() if not imported & names]
        if not free:
            break
        for module in free:
            del left[module]
    in_circles = {_dotted(module): _imports(module) for module in left}
    while idle := [name for name in in_circles if not any(name in i for i in in_circles.values())]:
        for name in idle:  # it only imports what is in a circle
            del in_circles[name]
    assert sorted(in_circles) == []


def _dotted(module):
    path = module.path.relative_to(SOURCE.parent).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__")


def _imports(module):
    """The modules that a module imports, for types as well."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cometmq."):
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.ImportFrom) and node.module == "cometmq":
            found |= {f"cometmq.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found - {_dotted(module)}


def test_the_client_the_broker_and_the_store_need_the_standard_library_alone():
    names = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for room in STANDARD_LIBRARY_ONLY
        for path in sorted(SOURCE.glob(f"{room}*/**/*.py")) + sorted(SOURCE.glob(f"{room}.py"))
    ]
    code = (
        f"import sys, importlib; sys.path.insert(0, {str(SOURCE.parent)!r})\n"
        "import cometmq\n"
        "for name in getattr(cometmq, '__all__', []): getattr(cometmq, name)\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    bare = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert bare.returncode == 0, bare.stderr


def test_every_public_name_at_the_root_is_there_for_type_checkers_too():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guarded = [node for node in tree.body if isinstance(node, ast.If)]
    told = {
        alias.asname or alias.name
        for node in guarded
        for imported in ast.walk(node)
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert told == set(cometmq.__all__)
