"""Tables in JSON: the last good copy is found whatever happened to the file."""

import errno
from pathlib import Path
from random import Random

import pytest

from cometmq.errors import StoreCorrupt
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.json_file import JsonFile, JsonTable
from cometmq.testing.sim_files import SimFiles


def load(table):
    """The whole content of a file that has the table t."""
    return table.load("t", dict)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


@pytest.fixture
def table(path):
    return JsonFile(path, SystemFiles())


def test_what_was_saved_is_loaded(table, path):
    assert load(table) is None
    for value in ({"t": {"a": [1, None, "ü"]}}, {"t": {}}):
        table.save(value)
        assert load(table) == value
    assert (
        path.with_name("topics.json.bak").read_text()
        == '{\n\t"t":{\n\t\t"a":[\n\t\t\t1,\n\t\t\tnull,\n\t\t\t"ü"\n\t\t]\n\t}\n}'
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


DAMAGE = {
    "missing": (None, "is missing"),
    "empty": (b"", "is empty"),
    "zeros": (bytes(100), "is empty"),
    "broken": (b'{"t":', "cannot be read (the body is no JSON"),
    "a list": (b"[]", "cannot be read (the body is no JSON object)"),
    "another object": (b'{"u":{}}', "cannot be read (t is not in it)"),
    "a table of no object": (b'{"t":[]}', "cannot be read (t is no JSON object)"),
    "bytes": (b"\xff\xfe", "cannot be read (the body is no JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_bad_file_is_replaced_by_its_backup_with_a_warning(table, path, damage, caplog):
    table.save({"t": {"n": 1}})
    table.save({"t": {"n": 2}})
    content, why = DAMAGE[damage]
    path.unlink() if content is None else path.write_bytes(content)
    assert load(table) == {"t": {"n": 1}}
    assert f"{path} {why}" in caplog.text
    assert ".bak, is used" in caplog.text
    assert table.is_from_backup


def test_a_bad_file_does_not_replace_its_backup_at_the_next_save():
    files = SimFiles(Random(1))
    path = Path("/store/config/t.json")
    for number in range(2):
        JsonFile(path, files).save({"t": {"n": number}})
    files.write(path, b"[]")
    table = JsonFile(path, files)
    assert load(table) == {"t": {"n": 0}}
    table.save({"t": {"n": 2}})
    assert load(JsonFile(path, files)) == {"t": {"n": 2}}
    files.delete(path)  # as between the two renames of a save
    assert load(JsonFile(path, files)) == {"t": {"n": 0}}
    table.save({"t": {"n": 3}})
    table.save({"t": {"n": 4}})
    files.delete(path)
    assert load(JsonFile(path, files)) == {"t": {"n": 3}}


def test_two_bad_copies_are_an_error_that_names_the_file(table, path):
    table.save({"t": {"n": 1}})
    path.write_bytes(b"{")
    with pytest.raises(StoreCorrupt) as caught:
        load(table)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path} cannot be read (the body is no JSON")
    assert sentence.endswith(
        "and its .bak is missing; bring one of the two back, or have it made anew: "
        f"cometmq store rebuild-table {path.parent.parent} topics.json"
    )


def test_java_s_bare_integer_keys_are_read(table, path):
    path.parent.mkdir()
    path.write_bytes(b'{\n\t"offsetTable":{\n\t\t"T@g":{0:250,1:7\n\t\t}\n\t}\n}')
    assert table.load("offsetTable", dict) == {"offsetTable": {"T@g": {"0": 250, "1": 7}}}


@pytest.mark.parametrize("seed", range(100))
def test_a_power_cut_leaves_the_old_table_or_the_new_one(seed):
    files = SimFiles(Random(seed))
    table = JsonFile(Path("/store/config/t.json"), files)
    table.save({"t": {"n": 0}})
    files.sync_error = OSError(errno.EIO, "stop here") if seed % 3 == 0 else None
    try:
        table.save({"t": {"n": 1}})
        saved = 1
    except OSError:
        saved = 0
    files.sync_error = None
    files.power_cut()
    found = load(table)
    assert found == {"t": {"n": 1}} if saved else found in ({"t": {"n": 0}}, {"t": {"n": 1}})


def test_a_full_disk_keeps_the_former_table():
    files = SimFiles(Random(1))
    table = JsonFile(Path("/store/config/t.json"), files)
    table.save({"t": {"n": 0}})
    files.room = 3
    with pytest.raises(OSError, match="No space"):
        table.save({"t": {"n": 1}})
    assert load(table) == {"t": {"n": 0}}
