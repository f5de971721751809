"""What a member of a group says of its work: a JSON text among the properties of its running info.

The property is ours; who does not know it ignores it. A text that cannot be read counts as none.
Java: none.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from cometmq.errors import ProtocolError
from cometmq.model.group_work import MemberWork, QueueWork
from cometmq.model.queue import MessageQueue

WORK_PROPERTY = "COMETMQ_WORK"


def encode_work(work: MemberWork) -> str:
    """The text of the property."""
    fields = asdict(work)
    fields["queues"] = [[*queue, asdict(one)] for queue, one in work.queues.items()]
    fields["lock_holders"] = [[*queue, holder] for queue, holder in work.lock_holders.items()]
    return json.dumps(fields, separators=(",", ":"))


def decode_work(text: str) -> MemberWork:
    """Read the text; fields of later versions are ignored. Raises ProtocolError."""
    try:
        fields = json.loads(text)
        queues = {
            MessageQueue(str(topic), str(broker), int(number)): QueueWork(**_known(QueueWork, one))
            for topic, broker, number, one in fields.pop("queues")
        }
        holders = {
            MessageQueue(str(topic), str(broker), int(number)): str(holder)
            for topic, broker, number, holder in fields.pop("lock_holders", ())
        }
        for name in ("outages", "lost"):
            fields[name] = tuple(map(str, fields.get(name, ())))
        return MemberWork(**_known(MemberWork, fields), queues=queues, lock_holders=holders)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"what a member says of its work cannot be read: {error}") from None


def _known(kind: type[MemberWork | QueueWork], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version knows, each of its own kind; TypeError, ValueError."""
    wanted = kind.__dataclass_fields__
    found = {name: value for name, value in fields.items() if name in wanted}
    for name, value in found.items():
        _check(str(wanted[name].type), value)
    return found


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "float": (int, float), "None": (type(None),),
    "dict": (dict,), "tuple": (tuple,),
}  # fmt: skip


def _check(annotation: str, value: object) -> None:
    kinds = [
        kind for part in annotation.split("|") for kind in _KINDS[part.partition("[")[0].strip()]
    ]
    if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{value!r:.40} is no {annotation}")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no number")
    if isinstance(value, dict):
        for share in value.values():
            _check("float", share)
