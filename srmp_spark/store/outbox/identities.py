"""Which rows of a batch are new: the identities of docs/DESIGN promise 5, decided for the whole batch at once.

A row is known by its ``key``; else by its source position; else by (batch, digest, how many equal rows came before). The first
two count per (application, destination), the third per batch as well. Each such *scope* has a number, and in it a hash of 16
bytes stands for the row. They are looked up and stored in ascending order, so that neighbours share pages; a scope that is
new needs no looking up at all. They are stored after all is decided, while the rows are packed (:meth:`Identities.store`).

What is stored in small transactions before the batch counts is named in ``identity_log`` too, by which it is taken out again if
the batch does not come about, or when its time is over. Source positions are few bytes and wait for the last transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from srmp_spark.store.outbox import positions
from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.outbox.errors import KEY_CONFLICT, NEEDS_KEY, BatchError
from srmp_spark.store.outbox.hashing import CONTENT_BYTES, HASH_BYTES, again
from srmp_spark.store.outbox.limits import CHUNK_ROWS
from srmp_spark.store.outbox.row_numbers import blocks, is_large, shares
from srmp_spark.store.outbox.scan import BY_DIGEST, BY_KEY, BY_POSITION, Scan
from srmp_spark.store.outbox.writes import Writes

ROW_BYTES = 64
"""An identity as it is stored: in its page, and in the log."""
_SCOPE = "SELECT id FROM scopes WHERE application = ? AND destination = ? AND batch = ?"
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count) "
_HASH = f"substr(:hashes, i * {HASH_BYTES} + 1, {HASH_BYTES})"
_FIND = _NUMBERS + f"SELECT i, content FROM n CROSS JOIN identities ON scope_id = :scope AND hash = {_HASH}"  # noqa: S608  # our own text
_CONTENT = f"substr(:contents, i * {CONTENT_BYTES} + 1, {CONTENT_BYTES})"
_INSERT = _NUMBERS + f"INSERT INTO identities SELECT :scope, {_HASH}, {_CONTENT}, :batch FROM n"  # noqa: S608  # our own text
"""A chunk of identities lies in byte strings and is one statement: no object for each, and Python's lock is left to others."""
_NONE = np.zeros(0, np.uint64)
_BIAS = np.uint64(1 << 63)

NameRow = Callable[[int], str]
"""Where row number n of the batch stands, and what identifies it: for errors, which may read a file."""


class _Fresh(NamedTuple):
    """Identities of one scope that are to be stored, at most a chunk, ascending."""

    scope: int
    high: np.ndarray
    low: np.ndarray
    content: np.ndarray | None
    """Only of keys."""


class Identities:
    """Decides which rows of a scanned batch are known."""

    def __init__(
        self, database: OutboxDatabase, application: str, batch: str, batch_no: int, at: int, writes: Writes, last: Writes
    ) -> None:
        """``writes`` may be flushed at any time; ``last`` is for the transaction that makes the batch count."""
        self._database = database
        self._connection = database.connection
        self._application, self._batch, self._batch_no, self._at = application, batch, batch_no, at
        self._writes, self._last = writes, last
        self._made: dict[tuple[str, str], int] = {}
        self._fresh: list[_Fresh] = []

    def decide(
        self, scan: Scan, rank: Callable[[np.ndarray], np.ndarray], name: NameRow
    ) -> Generator[np.ndarray]:
        """Work in steps; yields the mask of known rows as far as they are decided, the last one is complete.

        ``rank`` gives the places of rows in the order of the batch. Raises :class:`BatchError` for a key with two contents, or
        a position with two rows.
        """
        known = scan.zeros(bool)
        yield known
        for share in range(shares(scan.rows)):
            rows = yield from _rows_of_share(scan, share, known)
            yield from self._decide(scan, rows, rank, name, known)
            if is_large(scan.rows):  # all of them are too many to be kept until the rows are packed
                for _ in self.store():
                    yield known

    def _decide(
        self, scan: Scan, rows: np.ndarray, rank: Callable[[np.ndarray], np.ndarray], name: NameRow, known: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Decide for some rows, among which are all those with the same identities."""
        kind = scan.scope[rows].astype(np.uint32) * 4 + scan.how[rows]
        high, low = scan.high[rows], scan.low[rows]
        if len(rows) == scan.rows:
            scan.high = scan.low = _NONE  # a third of what is kept of a row
        order = np.lexsort((low, high, kind))
        kind, high, low = kind[order], high[order], low[order]
        order = rows[order]
        same = np.zeros(len(order), bool)
        same[1:] = (kind[1:] == kind[:-1]) & (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        if same.any():
            order = self._twice(scan, order, kind, same, known, rank, name)
        yield known
        starts = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(order)]
        for start, end in itertools.pairwise(starts):
            if start == end:
                continue
            destination, how = scan.scopes[int(kind[start]) // 4], int(kind[start]) % 4
            scope, is_new = self._scope(destination, self._batch if how == BY_DIGEST else "")
            span = slice(start, end)
            if how == BY_POSITION:
                yield from self._positions(scope, order[span], high[span], low[span], known)
            else:
                yield from self._hashes(scope, is_new, scan, order[span], high[span], low[span], same[span], known, name)

    def seen(self, scan: Scan, rows: int) -> bool:
        """Whether any of the first ``rows``, at most a chunk, was sent before."""
        for how, batch in ((BY_KEY, ""), (BY_DIGEST, self._batch)):
            of = np.flatnonzero(scan.how[:rows] == how)
            for destination in np.unique(scan.scope[:rows][of]).tolist():
                scope = self._connection.execute(_SCOPE, (self._application, scan.scopes[destination], batch)).fetchone()
                if scope is None:
                    continue
                mine = of[scan.scope[of] == destination]
                asked = {"scope": scope[0], "hashes": _packed(scan.high[mine], scan.low[mine]), "count": len(mine)}
                if self._connection.execute(_FIND, asked).fetchall():
                    return True
        return False

    def store(self) -> Iterator[None]:
        """After :meth:`decide`: write down what is new, a chunk in each step."""
        for scope, high, low, content in self._fresh:
            hashes = _packed(high, low)
            chunk = {
                "scope": scope, "hashes": hashes, "batch": self._batch_no, "count": len(high),
                "contents": None if content is None else content.astype(">u8").tobytes(),
            }  # fmt: skip
            self._writes.many(_INSERT, [chunk], ROW_BYTES * len(high))
            self._writes.add(
                "INSERT INTO identity_log VALUES (?, ?, ?, ?)", self._database.next_id("identity_log"), self._batch_no, scope,
                hashes,
            )  # fmt: skip
            yield
        self._fresh = []

    def _twice(
        self, scan: Scan, order: np.ndarray, kind: np.ndarray, same: np.ndarray, known: np.ndarray,
        rank: Callable[[np.ndarray], np.ndarray], name: NameRow,
    ) -> np.ndarray:  # fmt: skip
        """Rows of one batch with one identity."""
        how = kind % 4
        positions_twice = np.flatnonzero(same & (how == BY_POSITION))
        if len(positions_twice):
            index = int(positions_twice[0])
            first, second = name(int(order[index - 1])), name(int(order[index]))
            message = f"two rows of the batch have one source position: {first} and {second}"
            raise BatchError(400, NEEDS_KEY, message, "add a column key that tells them apart, or select the rows apart")
        if scan.content is not None and (same & (how == BY_KEY)).any():
            content = scan.content[order]
            differ = np.flatnonzero(same & (how == BY_KEY) & (content != np.roll(content, 1)))
            if len(differ):
                index = int(differ[0])
                first, second = name(int(order[index - 1])), name(int(order[index]))
                message = f"two rows of the batch have one key and differ in content: {first} and {second}"
                raise BatchError(409, KEY_CONFLICT, message, "a key belongs to one message for ever")
            # Of several the one that comes first in the order of the batch is sent.
            group = np.cumsum(~same)
            order = order[np.lexsort((rank(order), group))]
            known[order[same & (how == BY_KEY)]] = True
        return order

    def _scope(self, destination: str, batch: str) -> tuple[int, bool]:
        """Its number, and whether nothing can be in it yet."""
        made = self._made.get((destination, batch))
        if made is not None:
            return made, True
        row = self._connection.execute(_SCOPE, (self._application, destination, batch)).fetchone()
        if row is not None:
            (scope,) = row
            used = self._connection.execute("SELECT 1 FROM identities WHERE scope_id = ? LIMIT 1", (scope,)).fetchone()
            return int(scope), used is None
        scope = self._made[destination, batch] = self._database.next_id("scopes")
        self._writes.add(
            "INSERT INTO scopes VALUES (?, ?, ?, ?, ?)", scope, self._application, destination, batch, self._batch_no
        )
        return scope, True

    def _hashes(
        self, scope: int, is_new: bool, scan: Scan, rows: np.ndarray, high: np.ndarray, low: np.ndarray, same: np.ndarray,
        known: np.ndarray, name: NameRow,
    ) -> Iterator[np.ndarray]:  # fmt: skip
        by_key = int(scan.how[rows[0]]) == BY_KEY
        count = 0
        for start in range(0, len(rows), CHUNK_ROWS):
            span = slice(start, start + CHUNK_ROWS)
            numbers, repeats, upper, lower = rows[span], same[span], high[span], low[span]
            fresh = np.ones(len(numbers), bool)
            if not repeats.any():
                count = 0
            elif by_key:
                fresh &= ~repeats
            else:
                upper, lower = upper.copy(), lower.copy()
                for index in range(len(numbers)):
                    count = count + 1 if repeats[index] else 0
                    if count:
                        digest = _packed(upper[index : index + 1], lower[index : index + 1])
                        upper[index], lower[index] = np.frombuffer(again(digest, count), ">u8")
            content = _content(scan)[numbers] if by_key else None
            if not is_new:
                asked = {"scope": scope, "hashes": _packed(upper, lower), "count": len(numbers)}
                for index, stored in self._connection.execute(_FIND, asked).fetchall():
                    if (
                        content is not None
                        and stored is not None  # of a key that was restored no content is kept
                        and fresh[index]
                        and stored != content[index : index + 1].astype(">u8").tobytes()
                    ):
                        message = f"{name(int(numbers[index]))} was sent before with another content"
                        raise BatchError(409, KEY_CONFLICT, message, "a key belongs to one message for ever: use another one")
                    fresh[index] = False
                    known[numbers[index]] = True
            if fresh.any():
                self._fresh.append(_Fresh(scope, upper[fresh], lower[fresh], None if content is None else content[fresh]))
            yield known

    def _positions(
        self, scope: int, rows: np.ndarray, high: np.ndarray, low: np.ndarray, known: np.ndarray
    ) -> Iterator[np.ndarray]:
        sequences = (low ^ _BIAS).view(np.int64)
        blocks = sequences >> positions.BLOCK_BITS
        change = np.flatnonzero((np.diff(high) != 0) | (np.diff(blocks) != 0)) + 1
        starts = [0, *change.tolist(), len(rows)]
        for turn, (start, end) in enumerate(itertools.pairwise(starts), 1):
            source, block = int(high[start]), int(blocks[start])
            row = self._connection.execute(
                "SELECT known FROM positions WHERE scope_id = ? AND source_id = ? AND block = ?", (scope, source, block)
            ).fetchone()
            mask = np.zeros(positions.BLOCK, bool) if row is None else positions.decode(row[0])
            offsets = (sequences[start:end] & (positions.BLOCK - 1)).astype(np.int64)
            known[rows[start:end]] = mask[offsets]
            if not mask[offsets].all():
                mask[offsets] = True
                stored = positions.encode(mask)
                self._last.add(
                    "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)", scope, source, block, stored, self._at,
                    size=len(stored) + 30,
                )  # fmt: skip
            if turn % CHUNK_ROWS == 0:
                yield known
        yield known


def _rows_of_share(scan: Scan, share: int, known: np.ndarray) -> Generator[np.ndarray, None, np.ndarray]:
    """Return the numbers of the rows of one share, ascending; work in steps.

    Rows with the same identity, and source positions of one block, are of the same share. A share has about
    :data:`~.limits.ROWS_AT_ONCE` rows, and more of them where a batch repeats one content again and again.
    """
    if not is_large(scan.rows):
        return np.arange(scan.rows, dtype=np.uint32)
    count = np.uint64(shares(scan.rows))
    found = []
    for span in blocks(scan.rows):
        by_block = (scan.low[span] >> np.uint64(positions.BLOCK_BITS)) % count
        by_hash = (scan.high[span] >> np.uint64(32)) * count >> np.uint64(32)  # ascending, as they are stored
        mine = np.where(scan.how[span] == BY_POSITION, by_block, by_hash) == share
        found.append((np.flatnonzero(mine) + span.start).astype(np.uint32))
        yield known
    return np.concatenate(found)


def _packed(high: np.ndarray, low: np.ndarray) -> bytes:
    """The hashes one after another, as they are stored."""
    return np.stack([high, low], axis=1).astype(">u8").tobytes()


def _content(scan: Scan) -> np.ndarray:
    assert scan.content is not None, "rows with keys were scanned"
    return scan.content


def source_numbers(database: OutboxDatabase, last: Writes) -> Callable[[str, str, str], int]:
    """A number for each (queue_manager, epoch, queue), new ones written with ``last``."""
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
