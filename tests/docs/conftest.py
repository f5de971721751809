"""The programs that write pages, as modules."""

import importlib.util
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="session")
def writer_of():
    def load(page):
        spec = importlib.util.spec_from_file_location(page, SCRIPTS / f"{page}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
