"""The glossary, the names of the classes, and the words that we no longer use."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from house.tree import MODULES, ROOT

GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")

ROCKETMQS = {
    "ConsumeFrom", "ConsumeFromWhere", "MessageExt", "MessageListenerConcurrently",
    "MessageListenerOrderly", "SendMessageRequestHeaderV2",
}  # fmt: skip
"""Names that are RocketMQ's, or nearly."""

SLACK = 5
"""Uses of an old word by which its limit may be too high."""
OLD_WORDS_MAX: dict[str, dict[str, int]] = {
    "farewell": {"docs": 1},
    "shop": {"docs": 9},
    "ticks": {"docs": 1},
    "told": {"docs": 5, "tests": 2},
}
"""How often an old word still occurs; a number may only fall."""

OLD_WORDS = {
    "aside": "on a worker thread, a cold read",
    "bury": "make a dead letter",
    "buried": "made a dead letter",
    "cargo": "an index write",
    "farewell": "close",
    "heed": "follow, obey",
    "heeds": "follows, obeys",
    "hearsay": "what was reported",
    "lane": "key lane, or record template, key lock",
    "patience": "a retry deadline",
    "rig": "harness",
    "settle": "on_durable, or make durable",
    "settled": "durable",
    "shop": "a noun that says what the test has",
    "stint": "handler run",
    "story": "scenario",
    "tick": "loop iteration",
    "ticks": "loop iterations",
    "told": "reported, or given",
    "upkeep": "maintenance",
    "vouch": "write a checkpoint",
}
"""Private words of earlier versions, and what is said now."""

OLD_PHRASES = {
    "deaf ears": "is ignored",
    "long way": "slow path",
    "meets its end": "fails, or is given up",
    "put down": "release",
    "short way": "fast path",
}

KEY_LANES = re.compile(
    r"key|parking|completed_offsets|failure|test_order_in_outages|push_consumer|consumer_options"
)
"""Files that may speak of lanes."""

THIS = "tests/house/test_glossary.py"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", GLOSSARY, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def terms() -> list[str]:
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("- **")]
    return [term for line in lines for term in re.findall(r"\*\*(.+?)\*\*", line)]


@cache
def classes() -> dict[str, list[str]]:
    found = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    return found


def words_of(text: str) -> list[str]:
    """Single words in lower case; names are cut at their humps and underscores."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)]


@cache
def bases() -> dict[str, list[str]]:
    return {
        node.name: [ast.unparse(base) for base in node.bases]
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }


def is_error(name: str) -> bool:
    if name in ("Exception", "CometError"):
        return True
    return any(base != name and is_error(base) for base in bases().get(name, []))


def test_the_glossary_has_each_term_once_and_each_in_one_line():
    entries = [line for line in GLOSSARY.splitlines() if line.startswith("- **")]
    assert not [line for line in entries if not re.search(r"\*\*.*: .+\.$", line)]
    twice = [term for term, count in Counter(terms()).items() if count > 1]
    assert not twice
    assert len(entries) > 100


def test_no_two_classes_have_one_name_unless_the_glossary_says_why():
    twice = {name: files for name, files in classes().items() if len(files) > 1}
    allowed = set(re.findall(r"`(\w+)`", sections()["Class names that occur twice"]))
    new = {name: files for name, files in twice.items() if name not in allowed}
    assert not new, "rename one of them, or say in docs/glossary.md why both have this name"
    gone = allowed - twice.keys()
    assert not gone, "unique now: delete it from docs/glossary.md"


def test_the_last_word_of_each_class_name_is_in_the_glossary():
    known = {word for term in terms() for word in words_of(term)}
    known |= set(sections()["Plain nouns in class names"].partition(":")[2].split())
    unknown = {
        f"{name} ({files[0]})"
        for name, files in classes().items()
        if not is_error(name)
        and name not in ROCKETMQS
        and not words_of(name)[-1].endswith(("er", "or"))
        and not known & {last := words_of(name)[-1], last.removesuffix("s"), last[:-3] + "y"}
    }
    assert not unknown, "a noun that no reader knows: use another, or add it to docs/glossary.md"


@cache
def uses() -> dict[str, Counter[str]]:
    """How often each old word occurs, by the first folder."""
    old = re.compile("|".join([*OLD_WORDS, *OLD_PHRASES]).replace(" ", r"[\s_]+"), re.IGNORECASE)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for folder in ("src", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            is_generated = name.startswith("docs/reference/")  # from src, which is counted
            if is_generated or path.suffix not in {".py", ".md"}:
                continue
            if name in (THIS, "docs/glossary.md"):
                continue
            text = path.read_text(encoding="utf-8")
            for line in text.splitlines():
                if old.search(line):
                    for word in words_of(line):
                        if word in OLD_WORDS and not (word == "lane" and KEY_LANES.search(name)):
                            found[word][folder] += 1
            for phrase in OLD_PHRASES:
                pattern = rf"\b{phrase}\b".replace(" ", r"[\s_]+")
                found[phrase][folder] += len(re.findall(pattern, text, re.IGNORECASE))
    return found


@pytest.mark.parametrize("word", OLD_WORDS | OLD_PHRASES)
def test_a_word_of_earlier_versions_is_not_used_again(word):
    say = (OLD_WORDS | OLD_PHRASES)[word]
    more = {
        folder: count
        for folder, count in uses()[word].items()
        if count > OLD_WORDS_MAX.get(word, {}).get(folder, 0)
    }
    assert not more, f"say instead: {say}"


def test_the_limits_of_old_words_are_lowered_with_their_uses():
    found = uses()
    high = {
        (word, folder): limit
        for word, limits in OLD_WORDS_MAX.items()
        for folder, limit in limits.items()
        if limit > found[word].get(folder, 0) + SLACK
    }
    assert not high, "fewer are left: lower the numbers in OLD_WORDS_MAX"
