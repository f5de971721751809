"""Hot loops over many messages in C, where they could be built; `native/` has the source.

`c` is the module of them, None where it is missing or of another edition; `why_not` says why.
Whoever calls one has its form in Python, with the same results, beside the call.
COMETMQ_NATIVE=0 in the environment keeps the form in C away.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from cometmq._native import HotLoops

EDITION = 6
"""One more with each function that is new or takes or gives something else, here and in
`native/module.c`: a module that was built from older source, as after a pull, is not used."""


def _load() -> tuple[HotLoops | None, str]:
    try:
        import cometmq._native as _native
    except ModuleNotFoundError:
        missing = "no C compiler, no headers of Python, or a free-threaded one"
        return None, f"cometmq._native was not built: {missing}"
    except ImportError as problem:
        return None, str(problem)
    found = getattr(_native, "EDITION", 0)
    if found != EDITION:
        return None, f"{_native.__file__} is of edition {found}, not {EDITION}: build it again"
    return cast("HotLoops", _native), ""


c, why_not = _load()


def form() -> str:
    """Which form runs, and why, in a few words on one line."""
    return "C" if c is not None else f"Python ({' '.join(why_not.split())})"
