"""Numbers and names that the pages tell are those of the code."""

import re
from pathlib import Path

import pytest

from cometmq.broker.delivery import dead_letters
from cometmq.broker.pulls import held_requests as holds
from cometmq.broker.pulls import pull_long_polling as held_pulls
from cometmq.cli.main import cli
from cometmq.client.consumer.consumer_options import ConsumerOptions
from cometmq.client.producer import batch_sender as bulk
from cometmq.client.producer import message_checks as validation
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.model.group import GROUP_NAME_MAX
from cometmq.model.message import Property
from cometmq.model.topic import RETRY_TOPIC_NAME_MAX, TOPIC_NAME_MAX
from cometmq.rules.failures import retry_policy
from cometmq.rules.queues.flow_control import FlowLimits
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings

ROOT = Path(__file__).resolve().parents[2]
DEAD, SEND, CONSUME = "docs/operate/dead-letters.md", "docs/guide/send.md", "docs/guide/consume.md"
ORDER, WIRE, RECOVER = "docs/guide/order.md", "docs/design/wire.md", "docs/operate/recover.md"
CONSUMER, PRODUCER = ConsumerOptions(group="g"), ProducerOptions(group="g")
BROKER, NET, STORE = BrokerSettings(), NetSettings(), StoreSettings()
MIB = 1024 * 1024


BASES = (ROOT, ROOT / "src" / "cometmq")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md"))
)
PAGES_WITH_NAMES_OF_OTHERS = (
    "docs/guide/from-kafka.md",
    "docs/guide/from-rocketmq-client-python.md",
    "docs/java-map.md",
    "docs/design/apache-side-by-side.md",
    "docs/design/other-suites.md",
    "docs/operate/admin-codes.md",
)
PATH = r"[a-z_]\w*(?:/[a-z_0-9]\w*)+(?:\.\w+)?"


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (DEAD, retry_policy.REASON_CHARS_MAX),
        (DEAD, 4 * retry_policy.REASON_CHARS_MAX),
        (DEAD, RETRY_TOPIC_NAME_MAX),
        (DEAD, dead_letters.ORIGINS_MAX),
        (DEAD, dead_letters.GROUPS_MAX),
        (DEAD, validation.PROPERTIES_BYTES_MAX),
        (SEND, validation.PROPERTIES_BYTES_MAX),
        (SEND, TOPIC_NAME_MAX),
        (SEND, GROUP_NAME_MAX),
        (SEND, bulk.BATCH_MESSAGES_MAX),
        (SEND, PRODUCER.compress_over_bytes),
        (SEND, PRODUCER.pending_max),
        (SEND, PRODUCER.default_topic_queues),
        (SEND, PRODUCER.body_bytes_max // MIB),
        (CONSUME, CONSUMER.consume_threads),
        (CONSUME, FlowLimits().count),
        (CONSUME, FlowLimits().span),
        (CONSUME, int(CONSUMER.rebalance_s)),
        (CONSUME, int(CONSUMER.stop_timeout_s)),
        (ORDER, CONSUMER.suspend_ms),
        (ORDER, retry_policy.SUSPEND_MS_MAX),
        (ORDER, int(CONSUMER.lock_valid_s)),
        (ORDER, BROKER.queue_lock_expire_ms // 1000),
        (WIRE, NET.frame_bytes_max // MIB),
        (WIRE, NET.unsent_bytes_max // MIB),
        (WIRE, NET.connections_max),
        (WIRE, NET.in_flight_total_max),
        (WIRE, STORE.max_message_bytes // MIB),
        (WIRE, BROKER.held_pulls_max),
        (WIRE, holds.HELD_PER_CONNECTION_MAX),
        (WIRE, held_pulls.SUSPEND_MS_MAX // 60_000),
        (RECOVER, STORE.unwritten_bytes_max // MIB),
        (RECOVER, STORE.flush_consume_queue_thorough_interval_ms // 1000),
    ],
)
def test_a_number_of_the_code_stands_on_its_page(name, number):
    assert re.search(rf"(?<![\d,]){number:,}(?![\d,]\d)", page(name)), f"{name} lacks {number:,}"


def test_every_property_of_a_dead_letter_is_described():
    ours = {value for key, value in vars(Property).items() if key.startswith("DLQ_")}
    assert ours <= set(re.findall(r"^\| `(\w+)` \|", page(DEAD), re.MULTILINE))


def test_every_command_that_the_pages_call_exists():
    called = set()
    for name in PAGES:
        called |= set(re.findall(r"^(?:\.venv/bin/)?cometmq (\w+)", page(name), re.MULTILINE))
    assert called
    assert called <= set(cli.list_commands(None))


@pytest.mark.parametrize("name", PAGES)
def test_every_file_and_package_that_a_page_names_exists(name):
    text = page(name)
    named = set(re.findall(rf"`({PATH})/?`", text))
    named |= set(re.findall(rf"({PATH}\.py)\b", text))
    assert sorted(path for path in named if _is_of_the_tree(path) and not _exists(path)) == []


@pytest.mark.parametrize("name", PAGES)
def test_every_module_that_a_page_imports_or_names_exists(name):
    named = {
        dotted.replace(".", "/") for dotted in re.findall(r"\bcometmq\.([a-z_.]+\b)", page(name))
    }
    assert sorted(path for path in named if not (_exists(path) or _is_attribute(path))) == []


def _is_attribute(path):
    parent, _, last = path.rpartition("/")
    package = ROOT / "src" / "cometmq"
    modules = (package / f"{parent}.py", package / parent / "__init__.py")
    return any(last in m.read_text(encoding="utf-8") for m in modules if parent and m.exists()) or (
        not parent and last in (package / "__init__.py").read_text(encoding="utf-8")
    )


def test_every_class_that_a_page_names_occurs_in_the_code():
    sources = (path for name in ("src", "examples") for path in (ROOT / name).rglob("*.py"))
    known = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in sources)))
    named = {
        word
        for name in PAGES
        if name not in PAGES_WITH_NAMES_OF_OTHERS
        for quoted in re.findall(r"`([^`\n]+)`", page(name))
        for word in re.findall(r"\b[A-Z][a-z]+[A-Z]\w*", quoted)
    }
    assert len(named) > 50
    assert sorted(named - known - {"TagA", "TagB"}) == []  # tags of messages


def test_the_map_from_java_leads_to_files_of_the_package():
    files = re.findall(rf"`({PATH}(?:\.py)?)/?`", page("docs/java-map.md"))
    assert len(files) > 50
    assert [name for name in files if not (ROOT / "src" / "cometmq" / name).exists()] == []


def _is_of_the_tree(path):
    """Whether a path begins in a folder of ours; pages name files of stores, too.

    The demo and the commands of the start page leave theirs in `var`.
    """
    first = path.partition("/")[0]
    return first != "var" and any((base / first).is_dir() for base in BASES)


def _exists(path):
    """Whether a module, a package or any other file has this path, its suffix left out or not."""
    return any((base / name).exists() for base in BASES for name in (path, f"{path}.py"))


def test_every_target_of_make_that_the_pages_call_exists():
    targets = set(re.findall(r"^(\w+):", page("Makefile"), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "docs/start.md", "docs/guide/testing.md"):
        assert set(re.findall(r"(?:^|`)make (\w+)", page(name), re.MULTILINE)) <= targets


def test_every_bound_on_the_page_of_limits_has_a_test():
    text = page("docs/operate/limits.md")
    tables = re.findall(r"^\| (\w+ \| .*) \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert [head.partition(" |")[0] for head, _ in tables] == ["What", "Together", "What"]
    rows = [[row[2:-2].split(" | ") for row in found.splitlines()] for _, found in tables]
    assert [row[0] for row in rows[0] + rows[1]] == [row[0] for row in rows[2]]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = [re.findall(r"`(test_\w+)`", row[1]) for row in rows[2]]
    assert all(named), "a bound without a test"
    known = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    assert sorted({name for names in named for name in names} - known) == []
