"""A set of sequences without a limit of separate runs: bitmaps of blocks, and runs of blocks that are full.

Theory of operation. What a consumer received by priority is every second or third row of a log of millions. A list of runs
needs 100 bytes and a place in a list for each of them; a bitmap needs a bit for each row, and most bitmaps of a log that was
read in order are full. So the sequences are cut into blocks of :data:`BLOCK_SEQUENCES`, and a block is one of three things:

    empty      there is nothing of it here
    a part     an ``int`` whose bit ``n`` is the block's sequence ``n``: 550 bytes at most
    full       it belongs to a run of full blocks: 16 bytes, however many blocks those are

A mark in the middle changes one part, a run over a billion rows changes two parts and one run of blocks. Ten million
rows that lie apart, every second one of twenty million, are 4,883 parts and 3 MB.

The set also knows which of its *pieces* (a part, or a run of full blocks, named by its first block) have changed: who keeps
the set on disk writes those alone (:meth:`SequenceSet.take_changes`). A set that only grows may leave old pieces behind on
disk: what they say is still true.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from srmp_spark.sequences.ranges import Range, covered

BLOCK_BITS = 12
BLOCK_SEQUENCES = 1 << BLOCK_BITS
"""Sequences of a block. It is what a commit writes for one mark: 512 bytes, in one page of the database. Eight times as many
would halve the memory of the pieces' names, and write a page of its own for each mark."""
BLOCK_BYTES = BLOCK_SEQUENCES // 8
_LOW = BLOCK_SEQUENCES - 1
_FULL = (1 << BLOCK_SEQUENCES) - 1
_FEW = 16
"""Sequences of one block that are added bit by bit; the bits of more are written as text and read at once."""
_ONES = re.compile("1+")


class Piece(NamedTuple):
    """A part of the set as it is stored."""

    block: int
    """The first block: sequences from ``block * BLOCK_SEQUENCES`` on."""
    blocks: int
    """How many full blocks these are; 1 for a part."""
    bits: bytes | None
    """Of a part: bit ``n % 8`` of byte ``n // 8`` is the block's sequence ``n``; without zeros at the end. ``None``: full."""

    @property
    def last(self) -> int:
        """No sequence of the piece is above this one."""
        return (self.block + self.blocks << BLOCK_BITS) - 1


class SequenceSet:
    """A set of whole numbers from 0 on, up to any size. ``len(set)`` is the number of sequences."""

    __slots__ = ("_blocks", "_changed", "_count", "_firsts", "_lasts", "_parts")

    def __init__(self, runs: Iterable[Range] = ()) -> None:
        self._parts: dict[int, int] = {}
        self._blocks: list[int] = []
        """The keys of ``_parts``, ascending."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        """Runs of full blocks: ascending, disjoint, not adjacent."""
        self._count = 0
        self._changed: set[int] = set()
        for first, last in runs:
            self.add(first, last)

    # --- what is here -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        block = sequence >> BLOCK_BITS
        bits = self._parts.get(block)
        if bits is not None:
            return bits >> (sequence & _LOW) & 1 == 1
        return self._full_run(block) >= 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return (self._parts, self._firsts, self._lasts) == (
            other._parts,
            other._firsts,
            other._lasts,
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        shown = [f"{first}-{last}" for first, last in _at_most(self.runs(), 5)]
        return f"SequenceSet({self._count}: {', '.join(shown)}{', …' if len(shown) == 5 else ''})"

    @property
    def first(self) -> int:
        """The lowest sequence. Raises :class:`ValueError` if the set is empty."""
        return self._end(lowest=True)

    @property
    def last(self) -> int:
        """The highest sequence. Raises :class:`ValueError` if the set is empty."""
        return self._end(lowest=False)

    def _end(self, *, lowest: bool) -> int:
        if not self._count:
            raise ValueError("the set is empty")
        if lowest:
            ends = [block << BLOCK_BITS | _lowest(self._parts[block]) for block in self._blocks[:1]]
            return min(ends + [block << BLOCK_BITS for block in self._firsts[:1]])
        ends = [
            (block << BLOCK_BITS) + self._parts[block].bit_length() - 1
            for block in self._blocks[-1:]
        ]
        return max(ends + [(block << BLOCK_BITS) + _LOW for block in self._lasts[-1:]])

    def count(self, first: int, last: int) -> int:
        """Return how many sequences of the closed range are here."""
        if last < first or not self._count:
            return 0
        if first <= self.first and last >= self.last:
            return self._count
        low, high = first >> BLOCK_BITS, last >> BLOCK_BITS
        blocks, parts = self._blocks, self._parts
        found = 0
        for block in blocks[bisect_left(blocks, low) : bisect_right(blocks, high)]:
            found += (parts[block] & _mask(block, first, last)).bit_count()
        at = bisect_left(self._lasts, low)
        while at < len(self._firsts) and self._firsts[at] <= high:
            start, stop = self._firsts[at] << BLOCK_BITS, (self._lasts[at] << BLOCK_BITS) + _LOW
            found += min(stop, last) - max(start, first) + 1
            at += 1
        return found

    def next_missing(self, start: int) -> int:
        """Return the lowest sequence from ``start`` on that is not here."""
        return first_missing(start, self)

    def runs(self, start: int = 0) -> Iterator[Range]:
        """Yield the runs of sequences from ``start`` on: ascending, disjoint, not adjacent. One that begins before is cut."""
        return covered(self._runs_of_pieces(start))

    def gaps(self, first: int, last: int) -> Iterator[Range]:
        """Yield what of the closed range is not here: ascending, disjoint, not adjacent."""
        for start, stop in self.runs(first):
            if start > last:
                break
            if start > first:
                yield first, start - 1
            first = stop + 1
        if first <= last:
            yield first, last

    def _runs_of_pieces(self, start: int) -> Iterator[Range]:
        low = start >> BLOCK_BITS
        for block, blocks, bits in self.parts_and_runs(low):
            base = block << BLOCK_BITS
            if bits is None:
                yield max(base, start), (block + blocks << BLOCK_BITS) - 1
                continue
            if block == low:
                bits &= _FULL << (start & _LOW)
            for run in _ONES.finditer(f"{bits:b}"[::-1]):
                yield base + run.start(), base + run.end() - 1

    def parts_and_runs(self, low: int = 0) -> Iterator[tuple[int, int, int | None]]:
        """Yield (block, blocks, bits) of all pieces that reach block ``low``, ascending; bits ``None``: full."""
        at, full = bisect_left(self._blocks, low), bisect_left(self._lasts, low)
        while at < len(self._blocks) or full < len(self._firsts):
            if full == len(self._firsts) or (
                at < len(self._blocks) and self._blocks[at] < self._firsts[full]
            ):
                yield self._blocks[at], 1, self._parts[self._blocks[at]]
                at += 1
            else:
                yield self._firsts[full], self._lasts[full] - self._firsts[full] + 1, None
                full += 1

    def _full_run(self, block: int) -> int:
        """Return the number of the run of full blocks that holds ``block``; -1: none."""
        at = bisect_right(self._firsts, block) - 1
        return at if at >= 0 and block <= self._lasts[at] else -1

    # --- adding -------------------------------------------------------------------------------------------------------------

    def add(self, first: int, last: int) -> None:
        """Add the closed range. Raises :class:`ValueError` for a range that is none."""
        if not 0 <= first <= last:
            raise ValueError(f"{first} to {last} is no range of sequences")
        low, high = first >> BLOCK_BITS, last >> BLOCK_BITS
        if low == high:
            self._add_bits(low, _mask(low, first, last))
            return
        if first & _LOW:
            self._add_bits(low, _mask(low, first, last))
            low += 1
        if last & _LOW != _LOW:
            self._add_bits(high, _mask(high, first, last))
            high -= 1
        if low <= high:
            self._fill(low, high)

    def add_each(self, sequences: Iterable[int]) -> None:
        """Add these sequences, in any order. Raises :class:`ValueError` for one below 0."""
        ordered = sorted(sequences)
        if ordered and ordered[0] < 0:
            raise ValueError(f"{ordered[0]} is no sequence")
        for block, members in groupby(ordered, key=_block_of):
            self._add_bits(block, _bits_of(list(members)))

    def update(self, other: SequenceSet) -> None:
        """Add all that ``other`` holds."""
        for block, blocks, bits in other.parts_and_runs():
            if bits is None:
                self._fill(block, block + blocks - 1)
            else:
                self._add_bits(block, bits)

    def _add_bits(self, block: int, bits: int) -> None:
        if self._full_run(block) >= 0:
            return
        old = self._parts.get(block, 0)
        new = old | bits
        if new == old:
            return
        if new == _FULL:
            self._fill(block, block)
            return
        if not old:
            insort(self._blocks, block)
        self._parts[block] = new
        self._count += new.bit_count() - old.bit_count()
        self._changed.add(block)

    def _fill(self, low: int, high: int) -> None:
        """Make the blocks ``low`` to ``high`` full."""
        start, stop = bisect_left(self._blocks, low), bisect_right(self._blocks, high)
        for block in self._blocks[start:stop]:
            self._count -= self._parts.pop(block).bit_count()
            self._changed.add(block)
        del self._blocks[start:stop]
        start, stop = bisect_left(self._lasts, low - 1), bisect_right(self._firsts, high + 1)
        known = 0
        if start < stop:
            firsts, lasts = self._firsts[start:stop], self._lasts[start:stop]
            known = sum(lasts) - sum(firsts) + len(firsts)
            low, high = min(low, firsts[0]), max(high, lasts[-1])
            self._changed.update(firsts)
        self._firsts[start:stop], self._lasts[start:stop] = [low], [high]
        self._count += (high - low + 1 - known) << BLOCK_BITS
        self._changed.add(low)

    def discard_through(self, to: int) -> None:
        """Remove everything up to ``to``. The pieces below are gone with it, on disk too: who keeps them deletes them."""
        if not self._count or to < 0:
            return
        block = to >> BLOCK_BITS
        stop = bisect_left(self._blocks, block)
        for each in self._blocks[:stop]:
            self._count -= self._parts.pop(each).bit_count()
        del self._blocks[:stop]
        if (bits := self._parts.get(block)) is not None:
            left = bits & (_FULL & _FULL << (to & _LOW) + 1)
            self._count -= bits.bit_count() - left.bit_count()
            if left:
                self._parts[block] = left
            else:
                del self._parts[block], self._blocks[0]
        stop = bisect_left(self._lasts, block)
        self._count -= (sum(self._lasts[:stop]) - sum(self._firsts[:stop]) + stop) << BLOCK_BITS
        del self._firsts[:stop], self._lasts[:stop]
        if self._firsts and self._firsts[0] <= block:
            first, last = self._firsts.pop(0), self._lasts.pop(0)
            self._count -= (last - first + 1) << BLOCK_BITS
            if (last + 1 << BLOCK_BITS) > to + 1:
                self.add(to + 1, (last + 1 << BLOCK_BITS) - 1)
        self._changed = {each for each in self._changed if each >= block}

    def copy(self) -> SequenceSet:
        """Return a set of its own with the same sequences, and no changes."""
        made = SequenceSet()
        made._parts, made._blocks = self._parts.copy(), self._blocks[:]
        made._firsts, made._lasts, made._count = self._firsts[:], self._lasts[:], self._count
        return made

    # --- on disk ------------------------------------------------------------------------------------------------------------

    @property
    def changed(self) -> int:
        """How many pieces :meth:`take_changes` would name."""
        return len(self._changed)

    def take_changes(self) -> tuple[list[Piece], list[int]]:
        """Return the pieces that were made or changed since the last call, and the blocks that name a piece no more."""
        pieces: list[Piece] = []
        gone: list[int] = []
        for block in sorted(self._changed):
            piece = self._piece(block)
            if piece is None:
                gone.append(block)
            else:
                pieces.append(piece)
        self._changed.clear()
        return pieces, gone

    def note_changes(self, blocks: Iterable[int]) -> None:
        """Name these blocks in the next :meth:`take_changes` as well: what was taken was not stored."""
        self._changed.update(blocks)

    def pieces(self) -> Iterator[Piece]:
        """Yield all pieces, ascending."""
        for block, blocks, bits in self.parts_and_runs():
            yield Piece(block, blocks, None if bits is None else _bytes_of(bits))

    def add_piece(self, piece: Piece) -> None:
        """Add what was stored as one piece. Raises :class:`ValueError` for one that no set has made."""
        block, blocks, stored = piece
        if block < 0 or blocks < 1:
            raise ValueError(f"a piece of {blocks} blocks from block {block} on")
        if stored is None:
            self._fill(block, block + blocks - 1)
            return
        bits = int.from_bytes(stored, "little")
        if blocks != 1 or not 0 < bits <= _FULL:
            raise ValueError(f"{len(stored)} bytes are no part of {blocks} blocks")
        self._add_bits(block, bits)

    def _piece(self, block: int) -> Piece | None:
        bits = self._parts.get(block)
        if bits is not None:
            return Piece(block, 1, _bytes_of(bits))
        at = bisect_left(self._firsts, block)
        if at < len(self._firsts) and self._firsts[at] == block:
            return Piece(block, self._lasts[at] - block + 1, None)
        return None

    # --- several sets -------------------------------------------------------------------------------------------------------

    def full_until(self, block: int) -> int:
        """Return the last block of the run of full blocks that holds ``block``; -1 if it is not full."""
        at = self._full_run(block)
        return -1 if at < 0 else self._lasts[at]

    def bits_of(self, block: int) -> int:
        """Return the bits of one block."""
        return self._parts.get(block, 0) if self._full_run(block) < 0 else _FULL

    def count_in_both(self, first: int, last: int, other: SequenceSet) -> int:
        """Return how many sequences of the closed range are here and in ``other``."""
        if not self or not other:
            return 0
        low, high = max(first, self.first, other.first), min(last, self.last, other.last)
        if low > high:
            return 0
        one = self
        if len(other._blocks) + len(other._firsts) < len(one._blocks) + len(one._firsts):
            one, other = other, one
        found = 0
        for block, blocks, bits in one.parts_and_runs(low >> BLOCK_BITS):
            start = block << BLOCK_BITS
            if start > high:
                break
            if bits is None:
                found += other.count(max(start, low), min(start + (blocks << BLOCK_BITS) - 1, high))
            else:
                found += (bits & other.bits_of(block) & _mask(block, low, high)).bit_count()
        return found


def first_missing(start: int, *sets: SequenceSet) -> int:
    """Return the lowest sequence from ``start`` on that none of the sets holds: block by block, however many runs they are."""
    block, offset = start >> BLOCK_BITS, start & _LOW
    while True:
        full = max(each.full_until(block) for each in sets)
        if full >= block:
            block, offset = full + 1, 0
            continue
        bits = 0
        for each in sets:
            bits |= each.bits_of(block)
        free = ~bits >> offset
        if free & _FULL >> offset:
            return (block << BLOCK_BITS) + offset + _lowest(free)
        block, offset = block + 1, 0


def count_in_either(first: int, last: int, one: SequenceSet, other: SequenceSet) -> int:
    """Return how many sequences of the closed range are in at least one of the two."""
    if not one or not other or last < first:
        return one.count(first, last) + other.count(first, last)
    return one.count(first, last) + other.count(first, last) - one.count_in_both(first, last, other)


def _mask(block: int, first: int, last: int) -> int:
    """Return the bits of what of the closed range lies in the block, which the range touches."""
    low, high = max(first - (block << BLOCK_BITS), 0), min(last - (block << BLOCK_BITS), _LOW)
    return (1 << high + 1) - (1 << low)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _block_of(sequence: int) -> int:
    return sequence >> BLOCK_BITS


def _bits_of(sequences: list[int]) -> int:
    """Return the bits of sequences of one block."""
    if len(sequences) <= _FEW:
        bits = 0
        for sequence in sequences:
            bits |= 1 << (sequence & _LOW)
        return bits
    digits = bytearray(b"0") * BLOCK_SEQUENCES
    for sequence in sequences:
        digits[_LOW - (sequence & _LOW)] = 49  # "1"; the highest digit stands first
    return int(digits, 2)


def _bytes_of(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _at_most(runs: Iterator[Range], limit: int) -> Iterator[Range]:
    for _, run in zip(range(limit), runs, strict=False):
        yield run
