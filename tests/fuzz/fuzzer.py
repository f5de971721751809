"""A small fuzzer: damages inputs that were interesting before, and asks an oracle about each.

    PYTHONPATH=src:tests python -m fuzz.fuzzer [--count 1000000] [--seed 1] [--keep] [DECODER ...]

An input is interesting when the decoder answers in a way not seen before: another kind of value,
another sentence of refusal. `--keep` writes the shortest of them to corpus/, which later runs start
from. Finds: any exception but a refusal, an oracle that fails, an input that takes too long.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cometmq.errors import BadFilter, ProtocolError

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 2.0
INPUT_MAX = 4_096
ANSWERS_MAX = 10_000
"""Ways to answer that one run tells apart."""

KEPT_MAX = 48
"""Inputs of one decoder in the corpus."""

Check = Callable[[bytes], object]
"""Decodes, looks whether what came out holds together, and returns a word or two about it."""

SPLICES = (
    *(b"\\u", b"\\ud800", b'"', b"'", b"{", b"}", b"[", b":", b",", b"\x00", b"\x01", b"\x02"),
    *(b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00", b"-", b"9" * 20, b"1e9", b"$ref", b"null"),
    *(b"TAGS\x01", b"UNIQ_KEY\x01", b" AND ", b" NOT ", b"BETWEEN ", b"(", b")", b"IN (", b"--"),
)


class Decoder(NamedTuple):
    """What is fuzzed: its name, its check, and whole inputs to begin with."""

    name: str
    check: Check
    seeds: tuple[bytes, ...]


class FuzzFinding(NamedTuple):
    """An input that showed a bug, as short as a few tries could make it."""

    decoder: str
    data: bytes
    problem: str

    def __str__(self) -> str:
        return f"{self.decoder}: {self.problem}\n  input (hex): {self.data.hex()}"


def fuzz(
    decoder: Decoder, count: int, seed: int, kept: dict[str, bytes] | None = None
) -> FuzzFinding | None:
    """Try so many damaged inputs; the first bug found. `kept` gathers the interesting ones."""
    rng = random.Random(f"{decoder.name} {seed}")
    known = {} if kept is None else kept
    pool = [*decoder.seeds, *corpus_of(decoder.name)]
    for data in pool:
        if problem := _problem(decoder, data, known):
            return FuzzFinding(decoder.name, data, problem)
    for _ in range(count):
        data = damaged(rng, rng.choice(pool), pool)
        before = len(known)
        if problem := _problem(decoder, data, known):
            short = _shortened(decoder, data)
            return FuzzFinding(decoder.name, short, _problem(decoder, short, {}) or problem)
        if len(known) > before:
            pool.append(data)
    return None


def damaged(rng: random.Random, data: bytes, pool: list[bytes]) -> bytes:
    """The input with one to four damages: bits, bytes, gaps, repeats, splices, halves of others."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.randrange(256)
            case 2:
                del out[at : at + rng.randrange(1, 9)]
            case 3:
                out[at:at] = rng.choice(SPLICES)
            case 4:
                out[at:at] = out[at : at + rng.randrange(1, 30)]
            case 5 if at < len(out):
                out[at] = (out[at] + rng.choice((-1, 1))) % 256
            case _:
                other = rng.choice(pool)
                out[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(out[:INPUT_MAX])


def corpus_of(name: str) -> list[bytes]:
    """The inputs of one decoder that earlier runs kept."""
    path = CORPUS / f"{name}.txt"
    if not path.exists():
        return []
    return [bytes.fromhex(line) for line in path.read_text().splitlines()]


def _problem(decoder: Decoder, data: bytes, known: dict[str, bytes]) -> str | None:
    begin = time.process_time()
    try:
        said = str(decoder.check(data))
    except (ProtocolError, BadFilter) as refusal:
        said = str(refusal)
    except Exception as error:  # noqa: BLE001 - whatever else comes out is what we look for
        return f"{type(error).__name__}: {error}"
    if (taken := time.process_time() - begin) > SLOW_S:
        return f"took {taken:.1f} s for {len(data)} bytes"
    word = re.sub(r"'[^']*'|\"[^\"]*\"|[0-9a-fx]*[0-9][0-9a-fx]*", "#", said)[:80]
    is_new = word not in known and len(known) < ANSWERS_MAX
    if is_new or len(data) < len(known.get(word, b"")):
        known[word] = data
    return None


def _shortened(decoder: Decoder, data: bytes) -> bytes:
    """Leave out what the bug does not need, for as long as that helps."""
    step = max(1, len(data) // 2)
    while step:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + step :]
            if _problem(decoder, shorter, {}):
                data = shorter
            else:
                at += step
        step //= 2
    return data


def keep(name: str, known: dict[str, bytes]) -> None:
    """Write the interesting inputs to the corpus, the shortest first and not too many."""
    inputs = sorted(set(known.values()), key=lambda data: (len(data), data))[:KEPT_MAX]
    (CORPUS / f"{name}.txt").write_text("".join(f"{data.hex()}\n" for data in inputs if data))


def main() -> int:
    """Run as a program."""
    from fuzz.decoders import DECODERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("decoders", nargs="*", help=", ".join(DECODERS))
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    found = 0
    for name in given.decoders or DECODERS:
        begin, known = time.monotonic(), dict[str, bytes]()
        finding = fuzz(DECODERS[name], given.count, given.seed, known)
        taken = time.monotonic() - begin
        sys.stdout.write(f"{name}: {given.count} inputs, {len(known)} answers, {taken:.0f} s\n")
        sys.stdout.flush()
        if finding:
            found += 1
            sys.stdout.write(f"FOUND {finding}\n")
        elif given.keep:
            keep(name, known)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
