"""Imports: the floors by import-linter, and what a bare Python can import."""

import ast
import os
import subprocess
import sys

import cometmq
from house.tree import ROOT, SOURCE

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


def test_the_client_the_broker_and_the_store_need_the_standard_library_alone():
    names = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for package in STANDARD_LIBRARY_ONLY
        for path in sorted(SOURCE.glob(f"{package}*/**/*.py"))
        + sorted(SOURCE.glob(f"{package}.py"))
        if path.name != "pytest_plugin.py"  # only pytest imports it
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
    guarded_names = {
        alias.asname or alias.name
        for node in guarded
        for imported in ast.walk(node)
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    assert guarded_names == set(cometmq.__all__)
