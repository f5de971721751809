# ruff: noqa: INP001, T201
"""Writes the reference of the public API as HTML, from the docstrings, and checks its links.

    .venv/bin/python scripts/api_reference.py [DIRECTORY]

DIRECTORY is var/api unless given. Needs the extra `docs` (pdoc). Exit code 1: a link leads nowhere,
or a public name has no text.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from html import unescape
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pdoc

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("cometmq", "cometmq.compat", "cometmq.errors", "cometmq.otel", "cometmq.testing")
"""What users import; Spark's options have pages of their own."""
_LINK = re.compile(r'href="([^"]*)"')
_ANCHOR = re.compile(r'\bid="([^"]*)"')
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_TO_PRIVATE = re.compile(r'<a href="[^"]*#_[^"]*">(.*?)</a>')
"""A link to what a public class has of a private base: its text stays."""
_UNPACKED = re.compile(r"\*&lt;class &#x27;(?:\w+\.)*(\w+)&#x27;&gt;")
"""How pdoc shows `Unpack[Arguments]`, the named arguments of a method."""
_ELSEWHERE = {"http", "https", "mailto", "data"}


def main() -> int:
    """Write, check, and say what is wrong."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "var" / "api"
    pdoc.render.configure(docformat="markdown", show_source=False, search=True)
    # pdoc asks for annotations that only type checkers import; it shows them as they are written
    warnings.filterwarnings("ignore", "Error parsing type annotation", UserWarning)
    others = [f"!{name}" for name in _private_packages()]
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", ()):  # loaded at their first use
            setattr(module, name, thing := getattr(module, name))
            if inspect.isclass(thing):
                _show_inherited(thing)
    pdoc.pdoc(*MODULES, *others, output_directory=target)
    for path in target.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        text = _UNPACKED.sub(r"Unpack[\1]", _TO_PRIVATE.sub(r"\1", text))
        path.write_text(text, encoding="utf-8")
    problems = [*broken_links(target), *names_without_text()]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{target / 'index.html'}: {len(list(target.rglob('*.html')))} pages")
    return 1 if problems else 0


def _show_inherited(kind: type) -> None:
    """Have what a class has of bases that users do not import shown as its own."""
    for base in kind.__mro__[1:]:
        if not base.__module__.startswith("cometmq.") or base.__module__ == "cometmq.errors":
            continue
        for name, value in vars(base).items():
            if name[0] != "_" and name not in vars(kind):
                setattr(kind, name, value)


def _private_packages() -> list[str]:
    """The packages that users do not import: the map describes them."""
    package = ROOT / "src" / "cometmq"
    names = {path.stem for path in package.iterdir() if path.suffix in ("", ".py")}
    shown = {name.partition(".")[2] for name in MODULES}
    return [f"cometmq.{name}" for name in sorted(names - shown - {"__init__", "__pycache__"})]


def broken_links(directory: Path) -> list[str]:
    """Links between the pages, and within one, whose end is not there."""
    pages = {path.resolve(): path.read_text(encoding="utf-8") for path in directory.rglob("*.html")}
    anchors = {path: set(map(unescape, _ANCHOR.findall(text))) for path, text in pages.items()}
    found = []
    for path, whole in pages.items():
        text = _SCRIPT.sub("", whole)
        for link in set(map(unescape, _LINK.findall(text))):
            parts = urlsplit(link)
            if parts.scheme in _ELSEWHERE:
                continue
            end = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            if end not in pages or (fragment and fragment not in anchors[end]):
                found.append(f"{path.name}: the link {link} leads nowhere")
    return sorted(found)


def names_without_text() -> list[str]:
    """Public classes and functions, and their methods, that say nothing of themselves."""
    found = []
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not inspect.getdoc(thing) and callable(thing):
                found.append(f"{module.__name__}.{name} has no docstring")
            methods = vars(thing).items() if inspect.isclass(thing) else ()
            found += [
                f"{module.__name__}.{name}.{method} has no docstring"
                for method, value in methods
                if inspect.isfunction(value) and method[0] != "_" and not inspect.getdoc(value)
            ]
    return found


if __name__ == "__main__":
    sys.exit(main())
