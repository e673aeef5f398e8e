"""Decides which rows of a batch are new, for the whole batch at once.

A row is identified by its ``key``. Without a key it is identified by its source position, else by
(batch, digest, number of equal rows before it). Keys and positions count for each (application,
destination), digests for each batch as well. Each such *scope* has a number, and in a scope a hash
of 16 bytes stands for the row. Hashes are looked up and stored in ascending order, so that
neighbours share pages. A new scope needs no lookup. Identities are stored after everything is
decided, while the rows are packed (:meth:`Identities.store`).

A key and a source position belong to the content that had them first. A row that has one of them
and other content is a *conflict*, and never a repeat: :mod:`.conflicts` says what happens to it.

Identities that are stored in small transactions before the batch counts are also listed in
``identity_log``. The list is used to delete them again if the batch fails or when their time is
over. The contents of positions carry the number of the batch for the same purpose. The known
positions are few bytes, and are written in the last transaction. Contents without a known position
mean nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from srmp_spark.store.outbox.identity import key_contents, positions
from srmp_spark.store.outbox.identity.hashing import HASH_BYTES, again
from srmp_spark.store.outbox.identity.row_hashes import BY_DIGEST, BY_KEY, BY_POSITION
from srmp_spark.store.outbox.limits import CHUNK_ROWS
from srmp_spark.store.outbox.preparing.conflicts import LETTERS, Conflicts
from srmp_spark.store.outbox.preparing.row_numbers import blocks, is_large, shares
from srmp_spark.store.outbox.preparing.scan import Scan
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.writes import Writes

ROW_BYTES = 64
"""Bytes that one stored identity takes, in its page and in ``identity_log``."""
_SCOPE = "SELECT id FROM scopes WHERE application = ? AND destination = ? AND batch = ?"
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count) "
_HASH = f"substr(:hashes, i * {HASH_BYTES} + 1, {HASH_BYTES})"
_FIND = (
    f"{_NUMBERS} SELECT i, content FROM n"  # noqa: S608  # our own text
    f" CROSS JOIN identities ON scope_id = :scope AND hash = {_HASH}"
)
_CONTENT = f"substr(:contents, i * {key_contents.STORED_BYTES} + 1, {key_contents.STORED_BYTES})"
_INSERT = _NUMBERS + f"INSERT INTO identities SELECT :scope, {_HASH}, {_CONTENT}, :batch FROM n"  # noqa: S608  # our own text
"""Stores a chunk of identities with one statement.

The identities lie in byte strings. So there is no object for each of them, and Python's global lock
is free for other threads.
"""
_NONE = np.zeros(0, np.uint64)
_BIAS = np.uint64(1 << 63)

BLOCKS_AT_ONCE = 64
"""Blocks of positions whose contents are written in one step, 2 MB at most."""
_CONTENTS = "INSERT OR REPLACE INTO position_contents VALUES (?, ?, ?, ?, ?, ?)"


class _Fresh(NamedTuple):
    """New identities of one scope that must be stored, ascending, at most one chunk.

    ``high`` and ``low`` are the two halves of each.
    """

    scope: int
    high: np.ndarray
    low: np.ndarray
    content: np.ndarray | None
    """Content marks of the rows; ``None`` for identities that are not keys."""


class _Unmarked(NamedTuple):
    """New positions of one block, ascending, and the numbers of their rows in the batch."""

    scope: int
    source: int
    block: int
    places: np.ndarray
    rows: np.ndarray


class _Span(NamedTuple):
    """Rows of one scope that are identified in one way, sorted by identity.

    Rows with the same identity are in the order of the batch.
    """

    scope: int
    is_new: bool
    """Whether nothing is stored in the scope yet."""
    rows: np.ndarray
    """Numbers of the rows in the batch."""
    high: np.ndarray
    low: np.ndarray
    same: np.ndarray
    """Mask that is True for each row with the identity of the row before it."""

    def cut(self, start: int, end: int) -> _Span:
        """Return a span of the rows from index ``start`` to before index ``end``."""
        span = slice(start, end)
        return _Span(
            self.scope,
            self.is_new,
            self.rows[span],
            self.high[span],
            self.low[span],
            self.same[span],
        )

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Return an iterator over (start, end) of pieces of about a chunk of rows, as indices.

        ``end`` is excluded. All rows with one identity are in the same piece.
        """
        starts = (
            np.flatnonzero(~self.same)[::CHUNK_ROWS].tolist()
            if self.same.any()
            else range(0, len(self.rows), CHUNK_ROWS)
        )
        return itertools.pairwise([*starts, len(self.rows)])


class Identities:
    """Decides which rows of a batch are new, repeats or conflicts, and stores the new ones.

    Call :meth:`decide` first, and :meth:`store` and :meth:`store_contents` last.
    """

    known: np.ndarray
    """Mask of the rows that are repeats, by row number. Set by :meth:`decide`."""
    conflicts: Conflicts
    """The rows with the key or position of other content. Set by :meth:`decide`."""
    letters: np.ndarray
    """Mask of the conflicts that are no dead letters yet, by row number.

    Set by :meth:`decide`, only if ``wants_letters``.
    """

    def __init__(
        self,
        database: OutboxDatabase,
        application: str,
        batch: str,
        batch_no: int,
        at: int,
        writes: Writes,
        last: Writes,
        *,
        wants_letters: bool = False,
    ) -> None:
        """Begin with nothing decided.

        ``batch_no`` is the number of the batch, and ``at`` the retention clock, by which the
        identities grow old. ``writes`` may be flushed at any time. ``last`` is written in the
        transaction that makes the batch count. ``wants_letters`` says that conflicts become dead
        letters.
        """
        self._database = database
        self._connection = database.connection
        self._application, self._batch, self._batch_no, self._at = application, batch, batch_no, at
        self._writes, self._last = writes, last
        self._wants_letters = wants_letters
        self._made: dict[tuple[str, str], int] = {}
        self._fresh: list[_Fresh] = []
        self._unmarked: list[_Unmarked] = []
        self.has_marked = False
        """Whether the batch has new keys, which are stored with marks."""

    def decide(self, scan: Scan, rank: Callable[[np.ndarray], np.ndarray]) -> Generator[None]:
        """Decide for all rows, in steps, whether each is new, a repeat or a conflict.

        The module says when a row is new, a repeat or a conflict. Afterwards :attr:`known` and
        :attr:`conflicts` are complete. ``rank`` returns the places of rows in the order of sending.
        Raises :class:`BatchError` (503) if the disk has no room for a large batch, and
        :class:`StoreDamagedError` if a stored content cannot be read.
        """
        self.known = scan.zeros(bool)
        self.conflicts = Conflicts(scan.zeros(bool), keeps=self._wants_letters)
        if self._wants_letters:
            self.letters = scan.zeros(bool)
        yield
        if is_large(scan.rows) and scan.has_positions:
            yield from scan.mark_all()
        for share in range(shares(scan.rows)):
            rows = yield from _rows_of_share(scan, share)
            yield from self._decide(scan, rows, rank)
            if self._wants_letters:
                yield from self.find_letters()
            # The new identities of all shares would need too much memory until the rows are packed.
            if is_large(scan.rows):
                yield from itertools.chain(self.store(), self.store_contents(scan))

    def _decide(
        self, scan: Scan, rows: np.ndarray, rank: Callable[[np.ndarray], np.ndarray]
    ) -> Iterator[None]:
        """Decide, in steps, whether each of ``rows`` (row numbers) is new, a repeat or a conflict.

        ``rows`` must include all rows with the same identities. ``rank`` is that of :meth:`decide`.
        """
        # A slice of all rows makes no copy.
        of = rows if is_large(scan.rows) else slice(None)
        kind = scan.scope[of].astype(np.uint32) * 4 + scan.how[of]
        high, low = scan.high[of], scan.low[of]
        # The later shares of a large batch still need the hashes.
        if not is_large(scan.rows):
            # These arrays are a third of the memory that is kept for a row.
            scan.high = scan.low = _NONE
        order = _ascending(kind, high, low)
        kind, high, low = kind[order], high[order], low[order]
        order = rows[order]
        same = np.zeros(len(order), bool)
        same[1:] = (kind[1:] == kind[:-1]) & (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        if (same & (kind % 4 != BY_DIGEST)).any():
            # Of several rows with one key or position, the first one in the order of the batch
            # keeps it.
            order = order[np.lexsort((rank(order), np.cumsum(~same)))]
        yield
        starts = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(order)]
        for start, end in itertools.pairwise(starts):
            if start == end:
                continue
            destination, how = scan.scopes[int(kind[start]) // 4], int(kind[start]) % 4
            scope, is_new = self._scope(destination, self._batch if how == BY_DIGEST else "")
            span = _Span(
                scope, is_new, order[start:end], high[start:end], low[start:end], same[start:end]
            )
            yield from {BY_KEY: self._keys, BY_POSITION: self._positions, BY_DIGEST: self._digests}[
                how
            ](span, scan)

    def new(self, scan: Scan) -> np.ndarray:
        """Return a mask, by row number, of the rows that are neither repeats nor conflicts.

        Call this method after :meth:`decide`.
        """
        new = scan.zeros(bool)
        for span in blocks(scan.rows):
            new[span] = ~(self.known[span] | self.conflicts.mask[span])
        return new

    def find_letters(self) -> Iterator[None]:
        """Mark in :attr:`letters` the conflicts since the last call that are no dead letters yet.

        The work is done in steps. Of equal conflicts of the batch only the first one is marked.
        """
        for part in self.conflicts.take():
            count = len(part.rows)
            hashes = np.zeros((count, 2), np.uint64)
            for start in range(0, count, CHUNK_ROWS):
                hashes[start : start + CHUNK_ROWS] = part.hashes(start, start + CHUNK_ROWS)
                yield
            order = np.lexsort((part.rows, hashes[:, 1], hashes[:, 0]))
            repeats = np.zeros(count, bool)
            repeats[1:] = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1)
            order = order[~repeats]
            high, low, rows = hashes[order, 0], hashes[order, 1], part.rows[order]
            scope, is_new = self._scope(part.destination, LETTERS)
            span = _Span(scope, is_new, rows, high, low, np.zeros(len(rows), bool))
            for start in range(0, len(rows), CHUNK_ROWS):
                piece = span.cut(start, start + CHUNK_ROWS)
                fresh = np.ones(len(piece.rows), bool)
                for index, _ in self._stored(piece, piece.high, piece.low):
                    fresh[index] = False
                if fresh.any():
                    self._fresh.append(_Fresh(scope, piece.high[fresh], piece.low[fresh], None))
                    self.letters[piece.rows[fresh]] = True
                yield

    def seen(self, scan: Scan, rows: int) -> bool:
        """Return whether any of the first ``rows`` rows has a key or digest that is already stored.

        Source positions are not looked up. ``rows`` is at most a chunk.
        """
        for how, batch in ((BY_KEY, ""), (BY_DIGEST, self._batch)):
            of = np.flatnonzero(scan.how[:rows] == how)
            for destination in np.unique(scan.scope[:rows][of]).tolist():
                scope = self._connection.execute(
                    _SCOPE, (self._application, scan.scopes[destination], batch)
                ).fetchone()
                if scope is None:
                    continue
                mine = of[scan.scope[of] == destination]
                asked = {
                    "scope": scope[0],
                    "hashes": _packed(scan.high[mine], scan.low[mine]),
                    "count": len(mine),
                }
                if self._connection.execute(_FIND, asked).fetchall():
                    return True
        return False

    def store(self) -> Iterator[None]:
        """Add the new identities to ``writes``, one chunk in each step.

        Call the method after :meth:`decide`, and iterate over it until it ends.
        """
        for scope, high, low, content in self._fresh:
            hashes = _packed(high, low)
            chunk = {
                "scope": scope,
                "hashes": hashes,
                "batch": self._batch_no,
                "count": len(high),
                "contents": None if content is None else key_contents.encode(content),
            }
            self._writes.many(_INSERT, [chunk], ROW_BYTES * len(high))
            self._writes.add(
                "INSERT INTO identity_log VALUES (?, ?, ?, ?)",
                self._database.next_id("identity_log"),
                self._batch_no,
                scope,
                hashes,
            )
            yield
        self._fresh = []

    def store_contents(self, scan: Scan) -> Iterator[None]:
        """Add the content marks of the new positions to ``writes``, in steps.

        Call the method after the rows have their marks (:meth:`.Scan.mark_all`).
        """
        for turn, (scope, source, block, places, rows) in enumerate(self._unmarked, 1):
            added, marks = positions.encode_at(places), positions.encode_contents(scan.marks[rows])
            self._writes.add(
                _CONTENTS,
                scope,
                source,
                block,
                self._batch_no,
                added,
                marks,
                size=len(added) + len(marks) + 40,
            )
            if turn % BLOCKS_AT_ONCE == 0:
                yield
        self._unmarked = []

    def _scope(self, destination: str, batch: str) -> tuple[int, bool]:
        """Return the number of a scope, and whether the scope certainly has no stored hashes.

        A scope is that of the module: application, destination and ``batch``, which is empty for
        keys and positions. A scope that does not exist is made.
        """
        made = self._made.get((destination, batch))
        if made is not None:
            return made, True
        row = self._connection.execute(_SCOPE, (self._application, destination, batch)).fetchone()
        if row is not None:
            (scope,) = row
            used = self._connection.execute(
                "SELECT 1 FROM identities WHERE scope_id = ? LIMIT 1", (scope,)
            ).fetchone()
            return int(scope), used is None
        scope = self._made[destination, batch] = self._database.next_id("scopes")
        self._writes.add(
            "INSERT INTO scopes VALUES (?, ?, ?, ?, ?)",
            scope,
            self._application,
            destination,
            batch,
            self._batch_no,
        )
        return scope, True

    def _digests(self, span: _Span, scan: Scan) -> Iterator[None]:
        count = 0
        for start in range(0, len(span.rows), CHUNK_ROWS):
            part = span.cut(start, start + CHUNK_ROWS)
            upper, lower = part.high, part.low
            if not part.same.any():
                count = 0
            else:
                upper, lower = upper.copy(), lower.copy()
                for index in range(len(part.rows)):
                    count = count + 1 if part.same[index] else 0
                    if count:
                        digest = _packed(upper[index : index + 1], lower[index : index + 1])
                        upper[index], lower[index] = np.frombuffer(again(digest, count), ">u8")
            fresh = np.ones(len(part.rows), bool)
            for index, _ in self._stored(part, upper, lower):
                fresh[index] = False
            self.known[part.rows] = ~fresh
            if fresh.any():
                self._fresh.append(_Fresh(part.scope, upper[fresh], lower[fresh], None))
            yield

    def _keys(self, span: _Span, scan: Scan) -> Iterator[None]:
        for start, end in span.chunks():
            part = span.cut(start, end)
            content = _content(scan)[part.rows]
            first = ~part.same
            upper, lower, wanted = part.high[first], part.low[first], content[first]
            found, is_hashed = np.zeros(len(upper), bool), np.zeros(len(upper), bool)
            for index, stored in self._stored(part, upper, lower):
                found[index] = True
                # A key that was restored has no stored content.
                if stored is not None:
                    wanted[index], is_hashed[index] = key_contents.decode(stored)
            if is_hashed.any():
                yield from scan.hash_all()
                content = np.where(is_hashed[np.cumsum(first) - 1], scan.hashed[part.rows], content)
            self._settle(part, content, found, wanted, scan)
            fresh = ~found
            if fresh.any():
                self.has_marked = True
                self._fresh.append(_Fresh(part.scope, upper[fresh], lower[fresh], wanted[fresh]))
            yield

    def _stored(
        self, span: _Span, upper: np.ndarray, lower: np.ndarray
    ) -> list[tuple[int, bytes | None]]:
        """Return the stored ones of these hashes as pairs: index in ``upper``, and stored content.

        ``upper`` and ``lower`` are the halves of the hashes. The content is ``None`` if none is
        stored.
        """
        if span.is_new:
            return []
        asked = {"scope": span.scope, "hashes": _packed(upper, lower), "count": len(upper)}
        return self._connection.execute(_FIND, asked).fetchall()

    def _positions(self, span: _Span, scan: Scan) -> Iterator[None]:
        sequences = (span.low ^ _BIAS).view(np.int64)
        blocks = sequences >> positions.BLOCK_BITS
        change = np.flatnonzero((np.diff(span.high) != 0) | (np.diff(blocks) != 0)) + 1
        starts = [0, *change.tolist(), len(span.rows)]
        for turn, (start, end) in enumerate(itertools.pairwise(starts), 1):
            offsets = (sequences[start:end] & (positions.BLOCK - 1)).astype(np.int64)
            yield from self._block(
                span.cut(start, end), int(span.high[start]), int(blocks[start]), offsets, scan
            )
            if turn % CHUNK_ROWS == 0:
                yield
        yield

    def _block(
        self, part: _Span, source: int, block: int, offsets: np.ndarray, scan: Scan
    ) -> Iterator[None]:
        """Decide, in steps, about rows whose source positions are all in one block.

        ``source`` and ``block`` are the numbers of :mod:`.positions`, and ``offsets`` the offsets
        of the rows in the block.
        """
        row = self._connection.execute(
            "SELECT known FROM positions WHERE scope_id = ? AND source_id = ? AND block = ?",
            (part.scope, source, block),
        ).fetchone()
        mask = np.zeros(positions.BLOCK, bool) if row is None else positions.decode(row[0])
        rows, places = (
            (part.rows[~part.same], offsets[~part.same])
            if part.same.any()
            else (part.rows, offsets)
        )
        found = mask[places]
        if len(rows) < len(part.rows) or found.any():
            yield from scan.mark_all()
            wanted = scan.marks[rows]
            if found.any():
                there, stored = positions.stored_contents(
                    self._connection, part.scope, source, block
                )
                wanted = np.where(found & there[places], stored[places], wanted)
            self._settle(part, scan.marks[part.rows], found, wanted, scan)
            rows, places = rows[~found], places[~found]
        if not len(rows):
            return
        mask[places] = True
        known = positions.encode(mask)
        self._last.add(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)",
            part.scope,
            source,
            block,
            known,
            self._at,
            size=len(known) + 30,
        )
        self._unmarked.append(_Unmarked(part.scope, source, block, places, rows))

    def _settle(
        self, part: _Span, content: np.ndarray, found: np.ndarray, wanted: np.ndarray, scan: Scan
    ) -> None:
        """Note which rows of ``part`` are repeats and which are conflicts.

        A row is a repeat if its identity was known or occurred before in the batch, and belongs to
        the same content. It is a conflict if the identity belongs to another content. ``found`` and
        ``wanted`` have one value for each distinct identity of ``part``: whether it was known
        before the batch, and the content that it belongs to. ``content`` has the content of each
        row of ``part``. The results go into :attr:`known` and :attr:`conflicts`.
        """
        of = np.cumsum(~part.same) - 1 if part.same.any() else slice(None)
        differs = content != wanted[of]
        self.known[part.rows] = (found[of] | part.same) & ~differs
        if differs.any():
            self.conflicts.add(part, content, differs, found[of], scan)
        if part.same.any():
            self.conflicts.note_twice(part, part.same & ~differs, scan)


def _rows_of_share(scan: Scan, share: int) -> Generator[None, None, np.ndarray]:
    """Return the row numbers of one share of the batch, ascending, in steps.

    Rows with the same identity, and source positions of one block, are in the same share. A share
    has about :data:`~.limits.ROWS_AT_ONCE` rows. A share has more rows if the batch repeats one
    content again and again.
    """
    if not is_large(scan.rows):
        return np.arange(scan.rows, dtype=np.uint32)
    count = np.uint64(shares(scan.rows))
    found = []
    for span in blocks(scan.rows):
        # The source is added, because the positions of many short queues are all in the first
        # block.
        by_block = (scan.high[span] + (scan.low[span] >> np.uint64(positions.BLOCK_BITS))) % count
        # The shares ascend by hash, as identities are stored.
        by_hash = (scan.high[span] >> np.uint64(32)) * count >> np.uint64(32)
        mine = np.where(scan.how[span] == BY_POSITION, by_block, by_hash) == share
        found.append((np.flatnonzero(mine) + span.start).astype(np.uint32))
        yield
    return np.concatenate(found)


def _ascending(kind: np.ndarray, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return the indices that sort the rows by kind and identity; equal rows keep their order.

    The first half of the hash is enough to sort hashes of one kind, unless two of them are equal.
    Sorting by the first half alone takes a fifth of the time.
    """
    if len(kind) and (kind == kind[0]).all():
        order = np.argsort(high)
        ascending = high[order]
        if (ascending[1:] > ascending[:-1]).all():
            return order
    return np.lexsort((low, high, kind))


def _packed(high: np.ndarray, low: np.ndarray) -> bytes:
    """Return the hashes one after another as bytes, in their stored form."""
    return np.stack([high, low], axis=1).astype(">u8").tobytes()


def _content(scan: Scan) -> np.ndarray:
    assert scan.content is not None, "rows with keys were scanned"
    return scan.content


def source_numbers(database: OutboxDatabase, last: Writes) -> Callable[[str, str, str], int]:
    """Return a function that returns the number of a source (queue_manager, epoch, queue).

    A source is the log of one queue in one epoch. The function adds new sources to ``last``, which
    is written in the last transaction.
    """
    known: dict[tuple[str, str, str], int] = {}

    def number(queue_manager: str, epoch: str, queue: str) -> int:
        source = (queue_manager, epoch, queue)
        if source not in known:
            row = database.connection.execute(
                "SELECT id FROM sources WHERE queue_manager = ? AND epoch = ? AND queue = ?", source
            ).fetchone()
            if row is None:
                known[source] = database.next_id("sources")
                last.add("INSERT INTO sources VALUES (?, ?, ?, ?)", known[source], *source)
            else:
                known[source] = row[0]
        return known[source]

    return number
