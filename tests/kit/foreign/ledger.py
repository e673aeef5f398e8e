"""The sender's own record of a run: what was sent, answered, receipted and acknowledged.

Every line is written when the event happens, so that the record survives the kill of any process.
The verdict at the end is computed from this record and the stored rows alone.

When is a message *acknowledged*? A regular or durable message is acknowledged by its first complete
``200`` ([MC-MQSRM] 3.1.7.2.5). A stream message is acknowledged by a stream receipt that covers it.
A ``200`` also acknowledges a stream message if everything before it in the stream was acknowledged
when the send began. Otherwise a ``200`` proves little, because the receiver answers 200 also for a
position that it refuses (3.1.5.1.6.3). A message is *receipted* by a delivery receipt, or by a
stream receipt that covers it.
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
    """Return the digest of a body as the ledger stores it: 24 hexadecimal digits of SHA-256."""
    return hashlib.sha256(body).hexdigest()[:24]


@dataclass(slots=True, kw_only=True)
class Entry:
    """The fate of one message.

    Times are in seconds of ``time.monotonic``; ``None`` means that it has not happened.
    ``position`` is the position in the stream, or 0. ``attempts`` counts the sends.
    """

    key: Key
    queue: str
    kind: Kind
    body: str
    """:func:`digest` of the message body."""
    stream_id: str | None = None
    position: int = 0
    attempts: int = 0
    first_sent_at: float | None = None
    answered_at: float | None = None
    """Time of the first answer 200."""
    acknowledged_at: float | None = None
    receipted_at: float | None = None
    """Time of the delivery receipt, or of a stream receipt that covers the message."""
    refused: int | None = None
    """Status of the answer that made the sender delete the message."""
    wants_receipt: bool = False

    @property
    def id(self) -> str:
        r"""Return the identifier of the message: ``{guid}\number``."""
        return f"{{{self.key[0]}}}\\{self.key[1]}"


class Landed(NamedTuple):
    """A row that was stored at the receiver, with the fields that the judge needs."""

    queue: str
    epoch: str
    sequence: int
    lineage: str
    uniquifier: int
    body: str
    """:func:`digest` of the row's body."""
    stream_id: str | None
    stream_sequence: int | None

    @property
    def key(self) -> Key:
        """Return the key of the row, the same as in the ledger."""
        return self.lineage, self.uniquifier

    @property
    def id(self) -> str:
        r"""Return the identifier of the row's message: ``{guid}\number``."""
        return f"{{{self.lineage}}}\\{self.uniquifier}"


@dataclass(slots=True)
class Ledger:
    """Records all senders of one run.

    With ``path`` the events are also written there as JSON lines.
    """

    path: Path | None = None
    entries: dict[Key, Entry] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    """Name of an injected fault → how many times it was injected."""
    answers: Counter[str] = field(default_factory=Counter)
    """Number of answers by status; ``none`` counts requests without an answer."""
    violations: list[str] = field(default_factory=list)
    """Actions of a receiver that the document forbids."""
    stream_receipts: int = 0
    delivery_receipts: int = 0
    _file: IO[str] | None = None

    def write(self, event: str, **values: object) -> None:
        """Write one event to the file, if there is a file."""
        if self.path is None:
            return
        if self._file is None:
            self._file = self.path.open("a", buffering=1, encoding="utf-8")
        self._file.write(json.dumps({"at": round(time.time(), 4), "event": event, **values}) + "\n")

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def sending(self, entry: Entry) -> None:
        """Record an attempt to send. Call this method before the attempt's first byte is sent."""
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
        """Record that an attempt ended with ``status``, or without an answer (``None``).

        ``conclusive`` means that a 200 proves the message accepted. A 4xx other than 408 and 429
        marks the message as refused.
        """
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
        """Record that the message is acknowledged. From then on it must be stored exactly once."""
        if entry.acknowledged_at is None:
            entry.acknowledged_at = time.monotonic()
            self.write("acknowledged", id=entry.key)

    def receipted(self, entry: Entry, at: float) -> None:
        """Record that a receipt covers the message, which also acknowledges the message.

        ``at`` is in seconds of ``time.monotonic``. Only the first receipt counts.
        """
        if entry.receipted_at is None:
            entry.receipted_at = at
            self.write("receipted", id=entry.key)
        self.acknowledged(entry)

    def fault(self, name: str) -> None:
        """Count and write down a fault that was injected."""
        self.faults[name] += 1
        self.write("fault", name=name)

    def violation(self, text: str) -> None:
        """Record that the receiver broke a rule of the document."""
        self.violations.append(text)
        self.write("violation", text=text)

    @property
    def sent(self) -> int:
        """Return the number of messages of which at least one byte may have been sent."""
        return len(self.entries)

    def count(
        self, fate: Literal["acknowledged_at", "receipted_at", "refused"], kind: Kind | None = None
    ) -> int:
        """Return the number of messages that have met this fate, of one kind or of all kinds."""
        return sum(
            getattr(entry, fate) is not None
            for entry in self.entries.values()
            if kind in (None, entry.kind)
        )

    def unreceipted(self) -> list[Entry]:
        """Return the messages that asked for a receipt and have none, refused ones excepted."""
        return [
            entry
            for entry in self.entries.values()
            if entry.wants_receipt and entry.receipted_at is None and entry.refused is None
        ]

    def of_kind(self, kind: Kind) -> Iterator[Entry]:
        """Yield the entries of one kind, in the order of their first sends."""
        return (entry for entry in self.entries.values() if entry.kind == kind)


def receipt_delays(entries: Iterable[Entry]) -> list[float]:
    """Return the seconds from the first 200 of each receipted stream message to its receipt."""
    return [
        entry.receipted_at - entry.answered_at
        for entry in entries
        if entry.kind == "stream"
        and entry.receipted_at is not None
        and entry.answered_at is not None
    ]
