"""The source tree as the house tests see it: every module parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "cometmq"

HOT = (
    "wire/frame.py",
    "wire/frame_buffer.py",
    "wire/command.py",
    "wire/records/log_record.py",
    "wire/records/log_record_batch_decoder.py",
    "store/message_appender.py",
    "store/log/commit_log.py",
    "store/queues/consume_queue.py",
    "net/server.py",
    "broker/sends/send_handler.py",
    "broker/sends/send_check.py",
    "broker/sends/message_preparation.py",
    "broker/sends/single_message_writer.py",
    "broker/sends/send_response.py",
    "broker/pulls/pull_handler.py",
    "broker/pulls/pull_check.py",
    "broker/pulls/pull_reader.py",
    "broker/pulls/pull_response.py",
    "rules/queues/process_queue.py",
)
"""Files on the path of every message, relative to `src/cometmq`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    @property
    def package(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    @cached_property
    def imported(self) -> dict[str, str]:
        """Local name to what it stands for, `Path` to `pathlib.Path`."""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {a.asname or a.name.split(".")[0]: a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return names

    def calls(self) -> Iterator[tuple[int, str]]:
        """Line and full name of every call whose target is a plain dotted name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and (dotted := _dotted(node.func)):
                head, _, rest = dotted.partition(".")
                full = self.imported.get(head, head)
                yield node.lineno, f"{full}.{rest}" if rest else full


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


MODULES = [Module(path) for path in sorted(SOURCE.rglob("*.py"))]
