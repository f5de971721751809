"""The hot loops in C: one wheel a platform for all versions of CPython, by its stable ABI.

Builds without the interpreter's lock get none on purpose: they have no stable ABI, and the loops
keep borrowed references that only the lock protects. Where it cannot be built, the install goes on
without the module, too: see docs/decisions/042. Everything else is in pyproject.toml.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("native")

has_lock = not sysconfig.get_config_var("Py_GIL_DISABLED")
loops = Extension(
    "cometmq._native",
    sources=sorted(map(str, NATIVE.glob("*.c"))),
    depends=sorted(map(str, NATIVE.glob("*.h"))),
    extra_compile_args=["-O3", "-g0"],
    optional=True,
    py_limited_api=True,
)
setup(
    ext_modules=[loops] if has_lock else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_lock else {},
)
