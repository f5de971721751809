"""The Python in README, start page and guide runs; the links between pages lead somewhere."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SKETCHES = ("docs/design", "docs/decisions")
"""Pages whose code shows a shape and is not meant to run."""
ELSEWHERE = (".remote(", "pipelines as dp")
"""In code that needs a server or a command of Spark's: see tests/spark/page_examples.py."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(#[\w-]*)?\)")
GROUP = re.compile(r"""(?:Consumer\(|listen\(\s*spark,)\s*["']([\w%-]+)["']""")
START_S, RUN_S = 30, 900
"""Those with Spark take 150 s alone on two cores, and three times that beside three workers."""
SPARK = [pytest.mark.spark, pytest.mark.timeout(960)]


def _blocks():
    for page in PAGES:
        if page.relative_to(ROOT).as_posix().startswith(SKETCHES):
            continue
        for block in BLOCK.finditer(text := page.read_text(encoding="utf-8")):
            if any(word in block[1] for word in ELSEWHERE):
                continue
            line = text.count("\n", 0, block.start()) + 1
            yield f"{page.relative_to(ROOT)}:{line}", block[1]


def _snippets():
    """Each snippet by itself, but those with Spark one after the other around one Java."""
    blocks = dict(_blocks())
    with_spark = {name: code for name, code in blocks.items() if "spark" in code.lower()}
    for name in (name for name in blocks if name not in with_spark):
        yield pytest.param(blocks[name], id=name)
    steps = [
        f"exec(compile({code!r}, {name!r}, 'exec'), {{'__name__': '__main__'}})"
        for name, code in with_spark.items()
    ]
    yield pytest.param("\n".join(steps), id=" ".join(with_spark), marks=SPARK)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    root = tmp_path_factory.mktemp("snippets")
    ready = root / "ready.json"
    options = ["--store", str(root / "store"), "--ready-file", str(ready)]
    options += ["--namesrv-port", "0", "--broker-port", "0"]
    code = "from cometmq.cli.main import main; main()"
    with (root / "log").open("w") as log:
        broker = subprocess.Popen(
            [sys.executable, "-c", code, "standalone", *options], stdout=log, stderr=log
        )
    try:
        end = time.monotonic() + START_S
        while not ready.exists():
            assert broker.poll() is None, (root / "log").read_text()
            assert time.monotonic() < end, "the broker is not ready"
            time.sleep(0.02)
        yield json.loads(ready.read_text())
    finally:
        broker.send_signal(signal.SIGTERM)
        try:
            broker.wait(15)
        finally:
            broker.kill()


@pytest.mark.parametrize("code", list(_snippets()))
def test_a_snippet_of_the_pages_runs(code, addresses, tmp_path):
    code = code.replace("127.0.0.1:9876", addresses["namesrv"])
    code = code.replace("127.0.0.1:10911", addresses["broker"])
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_two_snippets_consume_as_one_group():
    """Who runs the pages one after the other on one broker gets what each of them says."""
    places = defaultdict(set)
    for name, code in _blocks():
        for group in GROUP.findall(code):
            places[group].add(name)
    assert places
    assert not {group: names for group, names in places.items() if len(names) > 1}


def test_relative_links_lead_to_files_and_headings_that_exist():
    broken = []
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            path = page.parent / target
            if not path.exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and anchor[1:] not in _anchors(path):
                broken.append(f"{page.relative_to(ROOT)}: {target}{anchor}")
    assert not broken


def _anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
