"""Mutants of binary input.

The changes concern lengths and counts, or keep other bytes in place. The changes of
:mod:`.mutators` are for texts. They insert and delete bytes, which shifts everything that follows,
so that a binary parser stops at the first length.
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
"""Limits of lengths, counts and offsets in every width.

0x8000021B is the number of CVE-2023-21554.
"""
LENGTH_MAX = 200_000
"""Most bytes of a mutant. A longer mutant is cut."""


def mutate(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    """Return ``data`` with one to four random changes, at most :data:`LENGTH_MAX` bytes.

    ``seeds`` are valid inputs, of which pieces are inserted.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = _change(data, seeds, rng)[:LENGTH_MAX]
    return data


def _change(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    if not data:
        return rng.choice(seeds)
    kind = rng.random()
    at = rng.randrange(len(data))
    # A number is written, mostly at an offset where a number can be.
    if kind < 0.4:
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
    """Yield ``count`` inputs of the target ``name``: first its seeds, then changes of them.

    The changes follow from ``name`` alone, so they are the same on every machine.
    """
    yield from seeds[:count]
    for number in range(len(seeds), count):
        # ``Random`` hashes a text by SHA-512, so the seed is the same in every process.
        rng = Random(f"{name} {number}")
        yield mutate(rng.choice(seeds), seeds, rng)
