"""The slots of an index file in memory: what a damaged file says, and what is copied out."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.index.slot_table import PIECE_BYTES, SlotTable
from cometmq.wire.records.index_file_layout import HEADER_BYTES, SLOT, IndexFileHeader

HEAD = IndexFileHeader(1, 2, 3, 4, 5, 6)


def test_what_cannot_be_the_number_of_an_entry_leads_nowhere() -> None:
    slots = PIECE_BYTES // 2  # two pieces
    raw = bytearray(HEADER_BYTES + slots * 4)
    far = slots - 1
    for slot, number in ((0, 9), (1, 10), (2, -1), (3, 0x7FFFFFFF), (far, 3), (far - 1, 11)):
        SLOT.pack_into(raw, HEADER_BYTES + slot * 4, number)
    table = SlotTable(slots)
    table.load(lambda at, length: bytes(raw[at : at + length]), 10)
    assert [table.newest(slot) for slot in (0, 1, 2, 3, far, far - 1)] == [9, 0, 0, 0, 3, 0]


@given(st.lists(st.integers(0, 3) | st.integers(0, 0x7FFFFFFF), max_size=60), st.integers(1, 20))
def test_slots_lead_to_the_newest_and_each_entry_to_the_one_before(
    hashes: list[int], at_once: int
) -> None:
    slots = 7
    table, newest, found = SlotTable(slots), dict[int, int](), list[int]()
    expected = []
    for begin in range(0, len(hashes), at_once):
        befores = table.chain(array("I", hashes[begin : begin + at_once]), begin + 1)
        found += [number for (number,) in SLOT.iter_unpack(befores.tobytes())]
    for number, hashed in enumerate(hashes, 1):
        expected.append(newest.get(hashed % slots, 0))
        newest[hashed % slots] = number
    assert found == expected
    assert [table.newest(slot) for slot in range(slots)] == [newest.get(n, 0) for n in range(slots)]
    copied = table.copy(HEAD, 0, HEADER_BYTES + slots * 4)
    assert [each for (each,) in SLOT.iter_unpack(copied[HEADER_BYTES:])] == [
        newest.get(n, 0) for n in range(slots)
    ]
