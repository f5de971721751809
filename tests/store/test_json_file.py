"""Tables in JSON: the last good copy is found whatever happened to the file."""

import errno
from pathlib import Path
from random import Random

import pytest

from cometmq.errors import StoreCorrupt
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.json_file import JsonFile, JsonTable
from cometmq.testing.sim_files import SimFiles


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


@pytest.fixture
def table(path):
    return JsonFile(path, SystemFiles())


def test_what_was_saved_is_loaded(table, path):
    assert table.load() is None
    for value in ({"a": [1, None, "ü"]}, {"b": {}}):
        table.save(value)
        assert table.load() == value
    assert (
        path.with_name("topics.json.bak").read_text()
        == '{\n\t"a":[\n\t\t1,\n\t\tnull,\n\t\t"ü"\n\t]\n}'
    )
    assert sorted(p.name for p in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_table_whose_entries_are_kept_as_text_has_the_same_bytes():
    encoded: list[object] = []

    def fields(value):
        encoded.append(value)
        return {"n": value[0], "more": {"ü": [value[1], {}]}} if value[0] else {}

    table = JsonTable("entries", fields)
    values = {f'k"{n}\n': (n, "x") for n in range(5)}
    for change in (
        dict,
        lambda old: {**old, 'k"1\n': (7, "y")},
        lambda old: {"new": old['k"2\n']},
        dict,
    ):
        values = change(values)
        whole = {"version": {"a": 1}, "b": {}, "entries": {k: fields(v) for k, v in values.items()}}
        before = {"version": {"a": 1}, "b": {}}
        assert table.encode(before, values) == JsonFile.encode(whole)
    assert table.encode(before, {}) == JsonFile.encode({**before, "entries": {}})
    del encoded[:]
    assert table.encode(before, values) == table.encode(before, values)
    assert len(encoded) == 1  # the table was empty meanwhile


@pytest.mark.parametrize("damage", ["missing", "empty", "broken"])
def test_a_bad_file_gives_way_to_its_backup(table, path, damage):
    table.save({"n": 1})
    table.save({"n": 2})
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else b'{"n":')
    assert table.load() == {"n": 1}


def test_two_bad_copies_are_an_error_that_names_the_file(table, path):
    table.save({"n": 1})
    path.write_bytes(b"{")
    with pytest.raises(StoreCorrupt, match=r"topics\.json"):
        table.load()


def test_java_s_bare_integer_keys_are_read(table, path):
    path.parent.mkdir()
    path.write_bytes(b'{\n\t"offsetTable":{\n\t\t"T@g":{0:250,1:7\n\t\t}\n\t}\n}')
    assert table.load() == {"offsetTable": {"T@g": {"0": 250, "1": 7}}}


@pytest.mark.parametrize("seed", range(100))
def test_a_power_cut_leaves_the_old_table_or_the_new_one(seed):
    files = SimFiles(Random(seed))
    table = JsonFile(Path("/store/config/t.json"), files)
    table.save({"n": 0})
    files.sync_error = OSError(errno.EIO, "stop here") if seed % 3 == 0 else None
    try:
        table.save({"n": 1})
        saved = 1
    except OSError:
        saved = 0
    files.sync_error = None
    files.power_cut()
    found = table.load()
    assert found == {"n": 1} if saved else found in ({"n": 0}, {"n": 1})


def test_a_full_disk_keeps_the_former_table():
    files = SimFiles(Random(1))
    table = JsonFile(Path("/store/config/t.json"), files)
    table.save({"n": 0})
    files.room = 3
    with pytest.raises(OSError, match="No space"):
        table.save({"n": 1})
    assert table.load() == {"n": 0}
