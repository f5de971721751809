"""The fuzzer over every decoder, and whether it would find a bug."""

from __future__ import annotations

import time

import pytest

from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from fuzz import fuzzer
from fuzz.decoders import DECODERS, log_record, raw_properties
from fuzz.fuzzer import CORPUS, KEPT_MAX, Decoder, corpus_of, fuzz
from oracle_runs import record_run

MILLION = 1_000_000


@pytest.mark.parametrize("name", DECODERS)
def test_what_was_found_before_and_some_more_shows_no_bug(name: str) -> None:
    assert fuzz(DECODERS[name], 1_500, seed=7) is None


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", DECODERS)
def test_a_million_damaged_inputs_show_no_bug(name: str) -> None:
    assert fuzz(DECODERS[name], MILLION, seed=1) is None
    replay = f"python -m fuzz.fuzzer --count {MILLION} --seed 1 {name}"
    record_run("fuzz", name, replay=replay, inputs=MILLION)


def test_the_corpus_is_small_and_of_decoders_that_exist() -> None:
    kept = {path.stem for path in CORPUS.glob("*.txt")}
    assert kept == set(DECODERS)
    assert all(len(corpus_of(name)) <= KEPT_MAX for name in kept)


def test_a_search_that_takes_the_end_of_another_key_for_its_own_is_found() -> None:
    def find(raw: bytes, key: bytes) -> bytes | None:
        at = raw.rfind(key + b"\x01")  # whatever stands before it
        if at < 0:
            return None
        end = raw.find(b"\x02", at)
        return raw[at + len(key) + 1 : len(raw) if end < 0 else end] or None

    wrong = DECODERS["properties"]._replace(check=lambda data: raw_properties(data, find))
    found = fuzz(wrong, 20_000, seed=1)
    assert found is not None
    pairs = properties.decode(found.data)
    assert any(find(found.data, key.encode()) is not None for key in ("TAGS", "UNIQ_KEY", "KEYS"))
    assert "alone" in found.problem
    assert len(found.data) < 40, (found, pairs)


def test_a_topic_length_read_as_one_byte_in_new_records_is_found() -> None:
    def after(_magic: int, tail: bytes, at: int) -> bytes:
        return stored.properties_after(stored.MAGIC_V1, tail, at)

    wrong = DECODERS["record"]._replace(check=lambda data: log_record(data, after))
    found = fuzz(wrong, 20_000, seed=1)
    assert found is not None
    assert str(found).startswith("record: AssertionError")


def test_a_decoder_that_reads_past_the_end_is_found() -> None:
    def third_byte(data: bytes) -> str:
        size = data[0] if data else 0
        return "long" if size > 2 and data[size] else "short"

    found = fuzz(Decoder("past_the_end", third_byte, (b"\x03abc", b"\x02ab")), 20_000, seed=1)
    assert found is not None
    assert found.problem.startswith("IndexError")
    assert len(found.data) <= 3


def test_a_decoder_that_hangs_on_some_input_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "SLOW_S", 0.1)

    def hangs(data: bytes) -> str:
        begin = time.process_time()
        while data[:1] == b"{" and time.process_time() < begin + 0.15:
            pass
        return "done"

    found = fuzz(Decoder("hangs", hangs, (b"x", b"{")), 10, seed=1)
    assert found is not None
    assert "took" in found.problem
