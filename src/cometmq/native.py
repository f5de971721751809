"""Hot loops over many messages in C, where they could be built; `native/` has the source.

`c` is the module of them, None where it is missing; `why_not` says why. Whoever calls one has its
form in Python, with the same results, beside the call. COMETMQ_NATIVE=0 in the environment keeps
the form in C away.
Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

c: ModuleType | None
try:
    from cometmq import _native as c
except ImportError as problem:
    c = None
    why_not = str(problem)
else:
    why_not = ""
