"""A set of sequences (row numbers of a queue) that may have any number of separate runs.

Theory of operation. A consumer that receives by priority receives every second or third row of a
log of millions. A list of runs needs 100 bytes for each such row. A bitmap needs a bit for each
row, and most bitmaps of a log that was read in order are full. So the set stores bitmaps of blocks,
and runs of blocks that are full. The sequences are cut into blocks of :data:`BLOCK_SEQUENCES`. A
block has one of three forms:

    empty      the set holds nothing of the block
    a part     an ``int`` whose bit ``n`` is the block's sequence ``n``: 550 bytes at most
    full       the block belongs to a run of full blocks: 16 bytes a run, however long

To add one sequence changes one part. To add a run of a billion rows changes two parts and one run
of blocks. Ten million separate rows, every second one of twenty million, need 4,883 parts and 3 MB.

A *piece* of the set is a part or a run of full blocks. The first block of a piece is its name. The
set records which pieces have changed, so that its owner writes only those pieces to disk
(:meth:`SequenceSet.take_changes`). The owner of a set that only grows may leave old pieces on disk,
because their contents stay true.
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
"""Sequences of one block.

A commit that records one more received row writes one block: 512 bytes, in one page of the
database. Blocks eight times as large would halve the memory for the names of the pieces, but each
such row would write a page of its own.
"""
BLOCK_BYTES = BLOCK_SEQUENCES // 8
_LOW = BLOCK_SEQUENCES - 1
_FULL = (1 << BLOCK_SEQUENCES) - 1
_FEW = 16
"""Most sequences of one block that are added bit by bit.

The bits of more sequences are written as a text of binary digits and parsed at once, because that
is faster.
"""
_ONES = re.compile("1+")


class SetPiece(NamedTuple):
    """One part or one run of full blocks of a :class:`SequenceSet`, as stored."""

    block: int
    """Number of the first block. The piece holds sequences from ``block * BLOCK_SEQUENCES`` on."""
    blocks: int
    """Number of full blocks of a run; 1 for a part."""
    bits: bytes | None
    """Bitmap of a part: bit ``n % 8`` of byte ``n // 8`` is the block's sequence ``n``.

    Zero bytes at the end are left out. ``None``: the piece is a run of full blocks.
    """


class SequenceSet:
    """A set of whole numbers from 0 on, of any size. ``len(set)`` is the number of sequences."""

    __slots__ = ("_blocks", "_changed", "_count", "_firsts", "_lasts", "_parts")

    def __init__(self, runs: Iterable[Range] = ()) -> None:
        self._parts: dict[int, int] = {}
        self._blocks: list[int] = []
        """The keys of ``_parts``, ascending."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        """The last block of each run of full blocks, as ``_firsts`` holds the first ones.

        The runs are ascending, disjoint and not adjacent.
        """
        self._count = 0
        self._changed: set[int] = set()
        for first, last in runs:
            self.add(first, last)

    # --- what is here -----------------------------------------------------------------------------

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

    __hash__ = None  # type: ignore[assignment]  # A set is mutable.

    def __repr__(self) -> str:
        shown = [f"{first}-{last}" for first, last in _at_most(self.runs(), 5)]
        return f"SequenceSet({self._count}: {', '.join(shown)}{', …' if len(shown) == 5 else ''})"

    @property
    def first(self) -> int:
        """Return the lowest sequence of the set. Raises :class:`ValueError` if the set is empty."""
        return self._end(lowest=True)

    @property
    def last(self) -> int:
        """Return the highest sequence of the set.

        Raises :class:`ValueError` if the set is empty.
        """
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
        """Return how many sequences of the closed range ``first`` to ``last`` are in the set."""
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
        """Return the lowest sequence from ``start`` on that is not in the set."""
        return first_missing(start, self)

    def runs(self, start: int = 0) -> Iterator[Range]:
        """Yield the runs of the set's sequences from ``start`` on.

        The runs are ascending, disjoint and not adjacent. A run that begins before ``start`` is cut
        to begin at ``start``.
        """
        return covered(self._runs_of_pieces(start))

    def gaps(self, first: int, last: int) -> Iterator[Range]:
        """Yield the runs of the closed range ``first`` to ``last`` that are not in the set.

        The runs are ascending, disjoint and not adjacent.
        """
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
        """Yield (first block, number of blocks, bits) of each piece from block ``low`` on.

        The pieces are in ascending order. ``bits`` is ``None`` for a run of full blocks. A run that
        begins before ``low`` and reaches it is yielded whole.
        """
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
        """Return the index of the run of full blocks that holds ``block``, or -1 if no run does."""
        at = bisect_right(self._firsts, block) - 1
        return at if at >= 0 and block <= self._lasts[at] else -1

    # --- adding -----------------------------------------------------------------------------------

    def add(self, first: int, last: int) -> None:
        """Add the closed range ``first`` to ``last``.

        Raises :class:`ValueError` unless 0 ≤ first ≤ last.
        """
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
        """Add these sequences, in any order.

        Raises :class:`ValueError` if a sequence is below 0.
        """
        ordered = sorted(sequences)
        if ordered and ordered[0] < 0:
            raise ValueError(f"{ordered[0]} is no sequence")
        for block, members in groupby(ordered, key=_block_of):
            self._add_bits(block, _bits_of(list(members)))

    def update(self, other: SequenceSet) -> None:
        """Add all sequences of the set ``other``."""
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
        """Add all sequences of the blocks ``low`` to ``high``, both included."""
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
        """Remove all sequences up to and including ``to``.

        The pieces below the block of ``to`` are not among the changes of the next
        :meth:`take_changes`. The owner of the set deletes those pieces from its disk.
        """
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
        """Return a separate set with the same sequences and no recorded changes."""
        made = SequenceSet()
        made._parts, made._blocks = self._parts.copy(), self._blocks[:]
        made._firsts, made._lasts, made._count = self._firsts[:], self._lasts[:], self._count
        return made

    # --- on disk ----------------------------------------------------------------------------------

    @property
    def changed(self) -> int:
        """Return how many blocks have changed since the last :meth:`take_changes`.

        Each of these blocks is in one of the two lists of the next :meth:`take_changes`.
        """
        return len(self._changed)

    def take_changes(self) -> tuple[list[SetPiece], list[int]]:
        """Return the changes since the last call as two lists, and count them as stored.

        The first list holds the pieces that were made or changed. The second list holds the numbers
        of the blocks that no longer name a piece. Call :meth:`note_changes` if the changes could
        not be stored.
        """
        pieces: list[SetPiece] = []
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
        """Let the next :meth:`take_changes` return the changes of ``blocks`` again.

        ``blocks`` are numbers of first blocks (:attr:`SetPiece.block`). Call the method if the
        changes that :meth:`take_changes` returned could not be stored.
        """
        self._changed.update(blocks)

    def pieces(self) -> Iterator[SetPiece]:
        """Yield all pieces of the set, ascending."""
        for block, blocks, bits in self.parts_and_runs():
            yield SetPiece(block, blocks, None if bits is None else _bytes_of(bits))

    def add_piece(self, piece: SetPiece) -> None:
        """Add the sequences of one stored piece.

        Raises :class:`ValueError` if no set can have written the piece.
        """
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

    def _piece(self, block: int) -> SetPiece | None:
        bits = self._parts.get(block)
        if bits is not None:
            return SetPiece(block, 1, _bytes_of(bits))
        at = bisect_left(self._firsts, block)
        if at < len(self._firsts) and self._firsts[at] == block:
            return SetPiece(block, self._lasts[at] - block + 1, None)
        return None

    # --- several sets -----------------------------------------------------------------------------

    def full_until(self, block: int) -> int:
        """Return the number of the last block of the run of full blocks that holds ``block``.

        Return -1 if ``block`` is not full.
        """
        at = self._full_run(block)
        return -1 if at < 0 else self._lasts[at]

    def bits_of(self, block: int) -> int:
        """Return the bitmap of block number ``block`` as an integer; 0 if the block is empty.

        Bit ``n`` is 1 if the set has sequence ``n`` of the block.
        """
        return self._parts.get(block, 0) if self._full_run(block) < 0 else _FULL

    def count_in_both(self, first: int, last: int, other: SequenceSet) -> int:
        """Return how many sequences of ``first`` to ``last`` are both in this set and in ``other``.

        ``first`` and ``last`` are included.
        """
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
    """Return the lowest sequence from ``start`` on that none of ``sets`` holds.

    The search goes block by block, so many short runs do not slow it down.
    """
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
    """Return how many sequences of ``first`` to ``last`` are in at least one of the two sets.

    ``first`` and ``last`` are included.
    """
    if not one or not other or last < first:
        return one.count(first, last) + other.count(first, last)
    return one.count(first, last) + other.count(first, last) - one.count_in_both(first, last, other)


def _mask(block: int, first: int, last: int) -> int:
    """Return a bitmap of those of the sequences ``first`` to ``last`` that lie in ``block``.

    Both bounds are included. The range must touch the block.
    """
    low, high = max(first - (block << BLOCK_BITS), 0), min(last - (block << BLOCK_BITS), _LOW)
    return (1 << high + 1) - (1 << low)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _block_of(sequence: int) -> int:
    return sequence >> BLOCK_BITS


def _bits_of(sequences: list[int]) -> int:
    """Return the bitmap of ``sequences``, which must all lie in one block."""
    if len(sequences) <= _FEW:
        bits = 0
        for sequence in sequences:
            bits |= 1 << (sequence & _LOW)
        return bits
    digits = bytearray(b"0") * BLOCK_SEQUENCES
    for sequence in sequences:
        # 49 is the digit "1". The text begins with the highest digit.
        digits[_LOW - (sequence & _LOW)] = 49
    return int(digits, 2)


def _bytes_of(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _at_most(runs: Iterator[Range], limit: int) -> Iterator[Range]:
    for _, run in zip(range(limit), runs, strict=False):
        yield run
