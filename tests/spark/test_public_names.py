"""What `cometmq.spark` offers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cometmq.spark

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
sys.modules["pyarrow"] = None
import cometmq.spark
from cometmq.errors import SettingsError
from cometmq.spark import deduplicated, listen
for call, given in ((listen, ("g", "T", "*", print)), (deduplicated, ())):
    try:
        call(None, *given, **({"checkpoint": "x"} if given else {}))
    except SettingsError as error:
        print(error)
"""


def test_each_public_name_can_be_imported() -> None:
    for name in cometmq.spark.__all__:
        assert getattr(cometmq.spark, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'listens'"):
        cometmq.spark.listens  # noqa: B018


def test_without_pyspark_a_call_is_a_one_sentence_error() -> None:
    code = [sys.executable, "-c", WITHOUT_PYSPARK]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("needs PySpark 4.2 or later and finds none: pip install") == 2
