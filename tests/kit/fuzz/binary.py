"""Mutants of binary input: numbers where lengths and counts are, changes that keep every other byte where it was.

The changes of :mod:`.mutators` are for texts: they insert and delete, which shifts all that follows and ends at the first
length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tests.kit.fuzz.curated import MUTANTS

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    11,
    12,
    15,
    16,
    27,
    28,
    0x7F,
    0x80,
    0xFA,
    0xFB,
    0xFF,
    0x100,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x20000,
    0x20001,
    0x3FFFFF,
    0x400000,
    0x400001,
    0x7FFFFFFF,
    0x80000000,
    0x8000021B,
    0xFFFFFFFE,
    0xFFFFFFFF,
    2**32,
    2**63,
    2**64 - 1,
)
"""Where lengths, counts and offsets end, in every width; 0x8000021B is the one of CVE-2023-21554."""
LENGTH_MAX = 200_000
"""Bytes of a mutant."""


def mutate(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    """``data`` with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = _change(data, seeds, rng)[:LENGTH_MAX]
    return data


def _change(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    if not data:
        return rng.choice(seeds)
    kind = rng.random()
    at = rng.randrange(len(data))
    if kind < 0.4:  # a number, mostly where one can be
        size = rng.choice((1, 2, 4, 4, 4, 8))
        at -= at % min(size, 4) if rng.random() < 0.8 else 0
        near = int.from_bytes(data[at : at + size], "little") + rng.choice((-1, 1))
        number: int = rng.choice(NUMBERS) if rng.random() < 0.7 else near
        written = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
        return (data[:at] + written + data[at + size :])[: len(data)]
    if kind < 0.55:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind < 0.65:
        inserted: bytes = rng.randbytes(rng.choice((1, 2, 4, 16)))
        return data[:at] + inserted + data[at:]
    if kind < 0.75:
        return data[:at] + data[at + rng.choice((1, 2, 4, 16, 64)) :]
    if kind < 0.82:
        return data[:at]
    if kind < 0.9:
        other = rng.choice(seeds)
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    if kind < 0.95:
        end = min(len(data), at + rng.choice((4, 16, 60)))
        return data[:end] + data[at:end] * rng.choice((1, 1, 2, 30)) + data[end:]
    return data[:at] + bytes(rng.choice((1, 2, 4, 16))) + data[at:]


def mutants(name: str, seeds: Sequence[bytes], count: int = MUTANTS) -> Iterator[bytes]:
    """The list of a target: its seeds, then changes of them; from its name, so the same everywhere."""
    yield from seeds[:count]
    for number in range(len(seeds), count):
        rng = Random(f"{name} {number}")  # a text: hashed by SHA-512, the same in every process
        yield mutate(rng.choice(seeds), seeds, rng)
