"""The sender's own record: what went out, what was answered, what was receipted, and what the sender may conclude.

Every line is written when the thing happens, so that the record outlives whatever is killed. The judgement at the end is
computed from this record and the rows that landed; nothing else knows how many there should be.

When is a message *acknowledged*? A regular or durable one: at its first complete ``200`` ([MC-MQSRM] 3.1.7.2.5). A stream
message: when a stream receipt covers it, or at a ``200`` to a send that began after everything before it in the stream was
acknowledged. (A ``200`` alone says little there: a refused position is answered 200 too, 3.1.5.1.6.3.)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NamedTuple

Key = tuple[str, int]
"""Lineage and uniquifier of a message."""
Kind = Literal["regular", "durable", "stream"]


def digest(body: bytes) -> str:
    """How the ledger remembers a body."""
    return hashlib.sha256(body).hexdigest()[:24]


@dataclass(slots=True, kw_only=True)
class Entry:
    """The fate of one message. Times are monotonic seconds; ``None``: it has not happened."""

    key: Key
    queue: str
    kind: Kind
    body: str
    """:func:`digest` of the body."""
    stream_id: str | None = None
    position: int = 0
    attempts: int = 0
    first_sent_at: float | None = None
    answered_at: float | None = None
    """The first 200."""
    acknowledged_at: float | None = None
    receipted_at: float | None = None
    """A stream receipt that covers it, or its delivery receipt."""
    refused: int | None = None
    """A status that made the sender delete it."""
    wants_receipt: bool = False

    @property
    def id(self) -> str:
        r"""``{guid}\number``."""
        return f"{{{self.key[0]}}}\\{self.key[1]}"


class Landed(NamedTuple):
    """A row that came out at the other end, as far as the judgement needs it."""

    queue: str
    epoch: str
    sequence: int
    lineage: str
    uniquifier: int
    body: str
    """:func:`digest` of the body."""
    stream_id: str | None
    stream_sequence: int | None

    @property
    def key(self) -> Key:
        """The same key as the ledger's."""
        return self.lineage, self.uniquifier

    @property
    def id(self) -> str:
        r"""``{guid}\number``."""
        return f"{{{self.lineage}}}\\{self.uniquifier}"


@dataclass(slots=True)
class Ledger:
    """All senders of one run write into one ledger. ``path``: also as JSON lines into this file."""

    path: Path | None = None
    entries: dict[Key, Entry] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    """Which faults were injected, and how often."""
    answers: Counter[str] = field(default_factory=Counter)
    """Answers by status; ``none`` for a request without one."""
    violations: list[str] = field(default_factory=list)
    """What a receiver did that the document forbids."""
    stream_receipts: int = 0
    delivery_receipts: int = 0
    _file: IO[str] | None = None

    def write(self, event: str, **values: object) -> None:
        """One line in the file."""
        if self.path is None:
            return
        if self._file is None:
            self._file = self.path.open("a", buffering=1, encoding="utf-8")
        self._file.write(json.dumps({"at": round(time.time(), 4), "event": event, **values}) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def sending(self, entry: Entry) -> None:
        """Called before the first byte of each attempt goes out."""
        entry.attempts += 1
        if entry.first_sent_at is None:
            entry.first_sent_at = time.monotonic()
            self.entries[entry.key] = entry
        where = {
            "queue": entry.queue,
            "kind": entry.kind,
            "stream": entry.stream_id,
            "position": entry.position,
        }
        self.write("sent", id=entry.key, attempt=entry.attempts, **where)

    def answered(self, entry: Entry, status: int | None, *, conclusive: bool) -> None:
        """An attempt ended with this status, or without one. ``conclusive``: a 200 means that it was accepted."""
        self.answers["none" if status is None else str(status)] += 1
        self.write("answered", id=entry.key, status=status)
        if status == 200:
            if entry.answered_at is None:
                entry.answered_at = time.monotonic()
            if conclusive:
                self.acknowledged(entry)
        elif status is not None and 400 <= status < 500 and status not in (408, 429):
            entry.refused = status

    def acknowledged(self, entry: Entry) -> None:
        """From now on the message must land, exactly once."""
        if entry.acknowledged_at is None:
            entry.acknowledged_at = time.monotonic()
            self.write("acknowledged", id=entry.key)

    def receipted(self, entry: Entry, at: float) -> None:
        """A receipt covers the message."""
        if entry.receipted_at is None:
            entry.receipted_at = at
            self.write("receipted", id=entry.key)
        self.acknowledged(entry)

    def fault(self, name: str) -> None:
        """A fault was injected."""
        self.faults[name] += 1
        self.write("fault", name=name)

    def violation(self, text: str) -> None:
        """The receiver broke a rule of the document."""
        self.violations.append(text)
        self.write("violation", text=text)

    @property
    def sent(self) -> int:
        """Messages of which at least one byte may have gone out."""
        return len(self.entries)

    def count(
        self, fate: Literal["acknowledged_at", "receipted_at", "refused"], kind: Kind | None = None
    ) -> int:
        """How many messages have met this fate."""
        return sum(
            getattr(entry, fate) is not None
            for entry in self.entries.values()
            if kind in (None, entry.kind)
        )

    def of_kind(self, kind: Kind) -> Iterator[Entry]:
        """The entries of one kind."""
        return (entry for entry in self.entries.values() if entry.kind == kind)


def receipt_delays(entries: Iterable[Entry]) -> list[float]:
    """Seconds from the first 200 of each receipted stream message to the receipt that covers it."""
    return [
        entry.receipted_at - entry.answered_at
        for entry in entries
        if entry.kind == "stream"
        and entry.receipted_at is not None
        and entry.answered_at is not None
    ]
