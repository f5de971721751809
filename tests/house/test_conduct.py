"""What packages may not do: read the clock, draw random numbers, touch files, swallow errors."""

import ast

import pytest

from house.tree import HOT, MODULES, Module

GROUND = {"errors", "metrics", "model", "rules", "settings", "wire"}
ROLES = {"store", "net", "namesrv", "broker", "client"}

CLOCKS = {
    "time.time",
    "time.time_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}
DICE = {
    "random.random",
    "random.randint",
    "random.randrange",
    "random.choice",
    "random.shuffle",
    "random.sample",
    "random.uniform",
    "uuid.uuid4",
    "uuid.uuid1",
    "os.urandom",
}
SLEEPS = {"time.sleep"}
FILES = {
    "open",
    "os.open",
    "io.open",
    "os.replace",
    "os.rename",
    "os.unlink",
    "os.fsync",
    "os.fdatasync",
}
CODE = {"eval", "exec", "compile", "__import__", "input"}

BROAD_EXCEPT = {
    "broker/cluster/table_writer.py": "whoever waits for a write hears that it failed",
    "broker/pulls/held_requests.py": "a request that cannot be rechecked must not harm the others",
    "broker/served_broker.py": "whatever ends a change of role, nobody else would start the broker",
    "client/blocking/event_loop_thread.py": "any error at a call's begin is in its future",
    "client/blocking/joined_send.py": "any error of a send is raised in the thread that waits",
    "client/consumer/rebalance.py": "an allocate function that raises: other topics go on",
    "client/handling/handler_call.py": "a handler that raises: its messages come again",
    "client/handling/process_pool.py": "any error of a handler goes back to the process that asked",
    "client/middleware/hook_calls.py": "a hook that only watches changes nothing by its errors",
    "client/middleware/send_hooks.py": "each error of a send is reported to hooks, and raised on",
    "client/middleware/handler_hooks.py": "each error of a handler likewise",
    "client/typed_topic.py": "a serializer of the user's: its message cannot be sent, or fails",
    "monitoring/http_server.py": "whatever fails while an answer is made becomes a status of 500",
    "net/channel.py": "any error of whoever reads an answer is raised where it is waited for",
    "net/dispatcher.py": "any error of a handler becomes one SYSTEM_ERROR",
    "store/durability.py": "a condition that raises must not leave its batch unanswered",
    "runtime/background.py": "a supervised task is logged and started again",
    "runtime/worker_jobs.py": "a job that raises must not end its thread, and its caller waits",
}
"""Files that may catch everything, and why."""


def _called(packages: set[str], banned: set[str], but: frozenset[str] = frozenset()) -> list[str]:
    return [
        f"{m.name}:{line} {name}"
        for m in MODULES
        if m.package in packages and m.name not in but
        for line, name in m.calls()
        if name in banned
    ]


def test_pure_packages_use_no_clock_no_randomness_and_no_file():
    assert not _called(GROUND, CLOCKS | DICE | SLEEPS | FILES)


def test_roles_take_time_and_randomness_as_parameters():
    assert not _called(ROLES, CLOCKS | DICE)


def test_roles_reach_files_through_the_port():
    assert not _called(ROLES, FILES)


def test_no_role_sleeps_on_the_loop():
    assert not _called(ROLES, SLEEPS)


def test_nobody_runs_text_as_code():
    assert not _called({m.package for m in MODULES}, CODE)


def test_only_the_named_files_catch_every_exception():
    found = {m.name: lines for m in MODULES if (lines := _broad(m))}
    assert {name: lines for name, lines in found.items() if name not in BROAD_EXCEPT} == {}


def _broad(module: Module) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    ]


@pytest.mark.parametrize("name", HOT)
def test_a_hot_file_neither_logs_nor_formats_on_success(name):
    module = next((m for m in MODULES if m.name == name), None)
    assert module, "the file is gone: correct HOT in tree.py"
    once = [f for f in module.functions() if f.name in {"start", "stop", "sweep"}]
    chatty = [
        (line, name)
        for line, name in module.calls()
        if name.endswith((".debug", ".info"))
        and not any(f.lineno <= line <= (f.end_lineno or 0) for f in once)
    ]
    assert not chatty, "between start and stop a hot file speaks of failures only"
    failing = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Raise | ast.Assert) or _may_format(node)
        for inner in ast.walk(node)
    }
    formatted = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.JoinedStr) and id(node) not in failing
    ]
    assert not formatted


def _may_format(node: ast.AST) -> bool:
    """Errors, what is printed for a person, and layouts compiled once."""
    if isinstance(node, ast.FunctionDef):
        return node.name in {"__repr__", "__str__"}
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id.endswith(("Error", "Reject", "Header", "Corrupt", "Full", "Struct"))
    )
