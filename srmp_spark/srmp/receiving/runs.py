"""A set of numbers as sorted, disjoint, closed ranges, each with the time of its latest arrival.

A queue manager numbers its messages upwards, so its numbers are mostly one run that grows at its
end. This case costs one comparison and two stores. Three parallel arrays hold a run in 24 bytes.
This matters because a sender with several destinations shows each of them only every second or
third number, so that nearly every message is a run of its own. A bitmap would also be possible, but
the state table shows runs to people.

The arrays are cut into blocks of :data:`BLOCK_RUNS_MAX` runs. A number in the middle of millions (a
retry, a second stream of the same sender) then moves one block and not all numbers after it, and
forgetting can stop after a part.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

BLOCK_RUNS_MAX = 4096
"""Most runs in a block, 32 KB in each array.

An insertion moves half of a block, which takes a microsecond. A full block is split in two.
"""
_NEVER = 2**63
"""Time that is later than any time in an array."""


class Run(NamedTuple):
    """The numbers ``first`` to ``last``, both included."""

    first: int
    last: int
    at: int
    """Time at which a number of this run arrived most recently, in microseconds since 1970."""


class Trimmed(NamedTuple):
    """The result of :meth:`Runs.trim`: the forgotten runs, and whether all old runs were found."""

    firsts: list[int]
    """First numbers of the runs that were forgotten."""
    looked_at: int
    """Number of runs whose time was compared."""
    complete: bool
    """False if a limit was reached and more old runs may exist."""


class _Block:
    """Neighbouring runs of one set. Only the last block of an empty set has no runs.

    ``at`` is the time at which a number arrived, in microseconds since 1970.
    """

    __slots__ = ("ats", "firsts", "lasts", "oldest")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.lasts = array("Q")
        self.ats = array("q")
        self.oldest = _NEVER
        """No run in the block is older than this time.

        After a refresh the value may be too low, until :meth:`Runs.trim` corrects it.
        """

    def append(self, first: int, last: int, at: int) -> None:
        """Add the run ``first`` to ``last``, both included, after all other runs of the block."""
        self.firsts.append(first)
        self.lasts.append(last)
        self.ats.append(at)
        if at < self.oldest:
            self.oldest = at

    def insert(self, index: int, number: int, at: int) -> None:
        """Insert a run of one number before run ``index``."""
        self.firsts.insert(index, number)
        self.lasts.insert(index, number)
        self.ats.insert(index, at)
        if at < self.oldest:
            self.oldest = at

    def refresh(self, index: int, at: int) -> None:
        """Record that a number of run ``index`` arrived at ``at``.

        The later of two times counts, in whichever order they are reported.
        """
        if at > self.ats[index]:
            self.ats[index] = at

    def delete(self, index: int) -> None:
        """Forget the run at ``index`` of the block."""
        del self.firsts[index], self.lasts[index], self.ats[index]

    def take(self, other: _Block, start: int, stop: int) -> None:
        """Replace the runs of this block by those of ``other`` from ``start`` to before ``stop``.

        ``start`` and ``stop`` are indices of runs.

        ``oldest`` is copied too, and may be too low for these runs.
        """
        self.firsts, self.lasts, self.ats = (
            other.firsts[start:stop],
            other.lasts[start:stop],
            other.ats[start:stop],
        )
        self.oldest = other.oldest

    def runs(self) -> Iterator[Run]:
        """Return all runs of the block, in order."""
        return map(Run, self.firsts, self.lasts, self.ats)


def _begin(block: _Block) -> int:
    return block.firsts[0]


class Runs(_Block):
    """Holds a set of unsigned 64-bit integers as runs.

    ``at`` is the time at which a number arrived, in microseconds since 1970. ``len(runs)`` is the
    number of runs. ``bool(runs)`` raises :class:`TypeError`, because it could mean runs or numbers.
    The object is itself the last of its blocks, because most sets have no other block.
    """

    __slots__ = ("_before", "_before_count")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        super().__init__()
        self._before: list[_Block] | tuple[()] = ()
        """The blocks before the last one. Most sets have none, and then not even a list."""
        self._before_count = 0
        for first, last, at in sorted(runs):
            if not self.append_run(first, last, at):
                self.lasts[-1] = max(last, self.lasts[-1])
                self.refresh(-1, at)

    def append_run(self, first: int, last: int, at: int) -> bool:
        """Add a whole run after all others, and return whether it was added.

        A run without a gap before it is not added: the result is False, and nothing changes. Raises
        :class:`ValueError` if the run begins after its end.
        """
        if first > last:
            raise ValueError(f"a run begins after its end: {first} > {last}")
        lasts = self.lasts
        if lasts and first <= lasts[-1] + 1:
            return False
        if len(lasts) >= BLOCK_RUNS_MAX:
            self._begin_block(len(lasts))
        self.append(first, last, at)
        return True

    def add(self, number: int, at: int) -> tuple[int, int | None]:
        """Add ``number``, which arrived at ``at``, and return the first numbers of two runs.

        The first result is the first number of the run that now holds ``number``. The second result
        is the old first number of a run that was merged or extended downwards, or ``None``. A table
        of runs must delete the row with that key.
        """
        firsts, lasts = self.firsts, self.lasts
        if not lasts or number > lasts[-1] + 1:
            if len(lasts) >= BLOCK_RUNS_MAX:
                self._begin_block(len(lasts))
            self.append(number, number, at)
            return number, None
        if number == lasts[-1] + 1:
            lasts[-1] = number
            if at > self.ats[-1]:
                self.ats[-1] = at
            return firsts[-1], None
        return self._add_inside(number, at)

    def _add_inside(self, number: int, at: int) -> tuple[int, int | None]:
        place = self._place_of(number)
        block = self._block(place)
        firsts, lasts = block.firsts, block.lasts
        # Run index - 1 begins at or below number. Run index, here or in the next block, begins
        # above it.
        index = bisect_right(firsts, number)
        left = index - 1
        if left >= 0 and number <= lasts[left]:
            block.refresh(left, at)
            return firsts[left], None
        right_place, right = (place, index) if index < len(firsts) else (place + 1, 0)
        # This block exists, because the caller has handled a number after all runs.
        behind = self._block(right_place)
        touches_left = left >= 0 and lasts[left] + 1 == number
        touches_right = behind.firsts[right] == number + 1
        if touches_left and touches_right:
            swallowed = behind.firsts[right]
            lasts[left] = behind.lasts[right]
            block.refresh(left, max(at, behind.ats[right]))
            self._delete(right_place, right)
            return firsts[left], swallowed
        if touches_left:
            lasts[left] = number
            block.refresh(left, at)
            return firsts[left], None
        if touches_right:
            moved = behind.firsts[right]
            behind.firsts[right] = number
            behind.refresh(right, at)
            return number, moved
        self._insert(place, index, number, at)
        return number, None

    def trim(self, before: int, forget: int | None = None, look_at: int | None = None) -> Trimmed:
        """Forget runs without an arrival since ``before`` (microseconds), the lowest runs first.

        At most ``forget`` runs are forgotten. No further block is begun after the times of
        ``look_at`` runs were compared. Blocks that are known to have no old run are skipped and not
        counted.
        """
        firsts: list[int] = []
        looked_at = place = 0
        while place <= len(self._before):
            block = self._block(place)
            if block.oldest >= before:
                place += 1
                continue
            if (forget is not None and len(firsts) >= forget) or (
                look_at is not None and looked_at >= look_at
            ):
                return Trimmed(firsts, looked_at, complete=False)
            looked_at += len(block.ats)
            old = [index for index, at in enumerate(block.ats) if at < before]
            if forget is not None:
                old = old[: forget - len(firsts)]
            firsts += [block.firsts[index] for index in old]
            blocks = len(self._before)
            if len(old) == len(block.ats):
                self._drop_block(place)
            else:
                for index in reversed(old):
                    block.delete(index)
                self._before_count -= len(old) if place < blocks else 0
                block.oldest = min(block.ats)
            # Otherwise another block is at this place now, or this block has more old runs.
            if len(self._before) == blocks and block.oldest >= before:
                place += 1
        return Trimmed(firsts, looked_at, complete=True)

    def all_since(self, before: int) -> bool:
        """Return True only if no run is older than ``before`` (microseconds since 1970).

        False proves nothing: it is also the result for a set of several blocks. :meth:`trim` finds
        out whether a run is older.
        """
        return self.oldest >= before and not self._before

    def at_first(self, first: int) -> Run | None:
        """Return the run that begins exactly at ``first``, or ``None``."""
        # A sender that counts upwards has changed the last run.
        if self.firsts and self.firsts[-1] == first:
            return Run(first, self.lasts[-1], self.ats[-1])
        block = self._block(self._place_of(first))
        index = bisect_right(block.firsts, first) - 1
        if index < 0 or block.firsts[index] != first:
            return None
        return Run(first, block.lasts[index], block.ats[index])

    def sample_ats(self, begin: int, step: int) -> list[int]:
        """Return the times of the runs with index ``begin``, ``begin + step`` and so on.

        The indices count all runs of the set in ascending order. The times are in microseconds
        since 1970.
        """
        found: list[int] = []
        passed = 0
        for place in range(len(self._before) + 1):
            ats = self._block(place).ats
            start = begin - passed if begin > passed else (begin - passed) % step
            found += ats[start::step]
            passed += len(ats)
        return found

    @property
    def newest(self) -> int:
        """Return the time at which any number arrived most recently, in microseconds since 1970.

        Raises :class:`ValueError` if the set is empty.
        """
        if len(self) == 0:
            raise ValueError("no number has been seen")
        return max(max(block.ats) for block in chain(self._before, (self,)))

    @property
    def last_at(self) -> int:
        """Return the time at which the highest run last got a number, in microseconds since 1970.

        Raises :class:`IndexError` if the set is empty. This needs no search. For a sender that
        counts upwards it equals :attr:`newest`.
        """
        return self.ats[-1]

    # --- blocks -----------------------------------------------------------------------------------

    def _block(self, place: int) -> _Block:
        return self._before[place] if place < len(self._before) else self

    def _place_of(self, number: int) -> int:
        """Return the place of the last block that begins at or below ``number``.

        A place is an index among all blocks of the set.

        Return 0, the first block, if none does.
        """
        before = self._before
        if not before or number >= self.firsts[0]:
            return len(before)
        return max(0, bisect_right(before, number, key=_begin) - 1)

    def _begin_block(self, stop: int) -> None:
        """Move the runs of the last block with indices below ``stop`` into a block of their own."""
        block = _Block()
        block.take(self, 0, stop)
        self._put_block(len(self._before), block)
        self.take(self, stop, len(self.firsts))
        if not self.firsts:
            self.oldest = _NEVER

    def _put_block(self, place: int, block: _Block) -> None:
        if not isinstance(self._before, list):
            self._before = []
        self._before.insert(place, block)
        self._before_count += len(block.firsts)

    def _insert(self, place: int, index: int, number: int, at: int) -> None:
        block = self._block(place)
        block.insert(index, number, at)
        half = len(block.firsts) // 2
        if place == len(self._before):
            if len(self.firsts) > BLOCK_RUNS_MAX:
                self._begin_block(half)
            return
        self._before_count += 1
        if len(block.firsts) > BLOCK_RUNS_MAX:
            upper = _Block()
            upper.take(block, half, len(block.firsts))
            block.take(block, 0, half)
            self._before_count -= len(upper.firsts)
            self._put_block(place + 1, upper)

    def _delete(self, place: int, index: int) -> None:
        block = self._block(place)
        if len(block.firsts) == 1:
            self._drop_block(place)
        else:
            block.delete(index)
            self._before_count -= place < len(self._before)

    def _drop_block(self, place: int) -> None:
        """Forget all runs of the block at ``place``, its index among all blocks.

        If it is the last block, the block before it becomes the last.
        """
        before = self._before
        if not isinstance(before, list) or not before:
            self.take(self, 0, 0)
            self.oldest = _NEVER
            return
        gone = before.pop(min(place, len(before) - 1))
        self._before_count -= len(gone.firsts)
        if place > len(before):
            self.take(gone, 0, len(gone.firsts))
        if not before:
            self._before = ()

    def __contains__(self, number: int) -> bool:
        lasts = self.lasts
        if not lasts or number > lasts[-1]:
            return False
        block = self._block(self._place_of(number)) if self._before else self
        index = bisect_right(block.firsts, number) - 1
        return index >= 0 and number <= block.lasts[index]

    def at_of(self, number: int) -> int | None:
        """Return the time at which the run that holds ``number`` last got a number, or ``None``.

        The time is in microseconds since 1970. ``None`` means that no run holds the number.
        """
        if number not in self:
            return None
        block = self._block(self._place_of(number))
        return block.ats[bisect_right(block.firsts, number) - 1]

    def __iter__(self) -> Iterator[Run]:
        return chain.from_iterable(block.runs() for block in chain(self._before, (self,)))

    def __len__(self) -> int:
        return self._before_count + len(self.firsts)

    def __bool__(self) -> bool:
        raise TypeError("is it 'no runs' or 'no numbers' that you mean? compare len(runs)")

    def __repr__(self) -> str:
        return f"Runs([{', '.join(f'{r.first}-{r.last}' for r in self)}])"
