"""Sizes, names and places of files and functions."""

import ast
import re
from statistics import median

from house.tree import HOT, MODULES, ROOT, SOURCE

LINES_MAX = 500
FUNCTION_LINES_MAX = 60
TEST_MODULE = re.compile(r"^from [\w.]*\btest_\w+ import", re.MULTILINE)
DRAWERS = {
    "util",
    "utils",
    "helper",
    "helpers",
    "common",
    "misc",
    "manager",
    "service",
    "base_utils",
}
JAVA_WORDS = re.compile(r"^Default[A-Z]|(Impl|Inner|Helper|Utils?|Manager|Service)$")


def test_no_file_is_longer_than_the_limit():
    long = {m.name: n for m in MODULES if (n := len(m.text.splitlines())) > LINES_MAX}
    assert not long


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{m.name}:{f.lineno} {f.name} has {n} lines"
        for m in MODULES
        for f in m.functions()
        if (n := (f.end_lineno or 0) - f.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long


def test_half_of_the_functions_have_at_most_ten_lines():
    assert median((f.end_lineno or 0) - f.lineno + 1 for m in MODULES for f in m.functions()) <= 10


def test_every_module_class_and_public_function_says_what_it_does():
    silent = [m.name for m in MODULES if m.text.strip() and not m.docstring]
    for module in MODULES:
        classes = [
            node
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ]
        silent += [
            f"{module.name}:{node.lineno} {node.name}"
            for owner in [module.tree, *classes]
            for node in owner.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
            and not _inherits_its_docstring(node)
        ]
    assert not silent


def _inherits_its_docstring(node: ast.stmt) -> bool:
    names = {ast.unparse(d) for d in getattr(node, "decorator_list", [])}
    return any(n in {"override", "overload"} or n.endswith(".setter") for n in names)


def test_package_files_are_empty_except_those_that_name_what_users_import():
    full = [m.name for m in MODULES if m.path.name == "__init__.py" and m.text]
    assert full == [
        "__init__.py",
        "faststream/__init__.py",
        "otel/__init__.py",
        "spark/__init__.py",
        "testing/__init__.py",
    ]


def test_no_file_name_stands_for_anything():
    parts = {part for m in MODULES for part in m.name.removesuffix(".py").split("/")}
    assert not parts & DRAWERS


def test_no_test_module_imports_from_another():
    """What several of them use lies in a module of its own."""
    files = (ROOT / "tests").rglob("test_*.py")
    assert [str(file) for file in files if TEST_MODULE.search(file.read_text("utf-8"))] == []


def test_no_class_bears_a_java_suffix():
    # wire keeps the names of Java's headers where they are what a reader searches for
    bad = [
        f"{m.name}: {node.name}"
        for m in MODULES
        if m.package != "wire"
        for node in ast.walk(m.tree)
        if isinstance(node, ast.ClassDef) and JAVA_WORDS.search(node.name)
    ]
    assert not bad


def test_no_file_has_a_todo():
    mark = re.compile(
        r"\b(TODO|FIXME|XXX|HACK|not implemented)\b|NotImplementedError", re.IGNORECASE
    )
    found = [
        f"{m.name}:{number} {line.strip()}"
        for m in MODULES
        for number, line in enumerate(m.text.splitlines(), 1)
        if mark.search(line)
    ]
    assert not found


def test_hot_files_exist_and_say_so():
    cold = [
        name
        for name in HOT
        if not (SOURCE / name).exists()
        or not next(m for m in MODULES if m.name == name).docstring.startswith("Hot.")
    ]
    assert not cold


def test_the_map_names_every_package():
    packages = {m.package for m in MODULES} - {"__init__", "__main__"}
    drawn = set(
        re.findall(r"^\| \d \| `(\w+)`", (ROOT / "docs/design/map.md").read_text(), re.MULTILINE)
    )
    assert packages == drawn


def test_no_file_has_the_marks_of_a_merge():
    kinds = (".py", ".md", ".toml", ".yml", ".yaml", ".c", ".h", ".java", ".json", ".sh")
    places = ("src", "tests", "docs", "bench", "scripts", "examples", "demo", "deploy", ".")
    files = {
        path
        for place in places
        for path in (ROOT / place).glob("*" if place == "." else "**/*")
        if path.suffix in kinds and path.is_file()
    }
    assert len(files) > len(MODULES)
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert not [
        str(path.relative_to(ROOT))
        for path in sorted(files)
        if marks.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
