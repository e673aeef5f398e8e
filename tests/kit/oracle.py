"""Judges reliability tests: compares the acknowledged messages with those that landed.

A message has *landed* when it is read at its final place. The comparison takes place after a full
drain. The oracle uses four words, after Jepsen's ``total-queue`` checker. *Lost*: the message was
acknowledged and did not land. *Unexpected*: the message landed and was never sent. *Doubled*: the
message landed more than once. *Disordered*: the message landed after a later message of its stream.

A message that the receiver discarded on purpose, permanently, is not lost. Such a message is
unexpected if it lands nevertheless. A message that was sent and never acknowledged may have landed
or not; both outcomes are correct. The oracle neither knows the outcome in advance nor how the
system works.

    oracle = Oracle()
    oracle.sent("a-1", stream="a")
    oracle.acknowledged("a-1")
    oracle.landed("a-1")
    assert oracle.verdict().clean
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faults that the oracle found, as keys of messages; all lists are empty if none."""

    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Return whether no fault was found."""
        return not (self.lost or self.unexpected or self.doubled or self.disordered)

    def __str__(self) -> str:
        return (
            f"lost {len(self.lost)}, unexpected {len(self.unexpected)}, "
            f"doubled {len(self.doubled)}, disordered {len(self.disordered)}"
        )


class Oracle:
    """The record of one run's messages.

    A key is any text that names a message. A message keeps one key, however often it is sent again.
    """

    def __init__(self) -> None:
        self._sent: dict[str, tuple[str | None, int]] = {}
        self._acknowledged: dict[str, None] = {}
        self._may_repeat: dict[str, None] = {}
        self._discarded: dict[str, None] = {}
        self._landed: list[str] = []

    def sent(self, key: str, *, stream: str | None = None, may_repeat: bool = False) -> None:
        """Record that a message is sent for the first time.

        A repeated call for a key is ignored. Messages of one ``stream`` must land in the order of
        these calls. ``may_repeat`` says that the message carries no identity, so that it may land
        more than once.
        """
        if key not in self._sent:
            self._sent[key] = (stream, len(self._sent))
            if may_repeat:
                self._may_repeat[key] = None

    def acknowledged(self, key: str) -> None:
        """Record that the receiver accepted responsibility for the message."""
        self._acknowledged[key] = None

    def discarded(self, key: str) -> None:
        """Record that the receiver accepted the message and discarded it because it was too late.

        The receiver keeps no row of the message. The discarding is final and on stable storage.
        """
        self._discarded[key] = None

    def landed(self, key: str) -> None:
        """Record that the message was read at its final place. Call this in reading order."""
        self._landed.append(key)

    @property
    def sent_keys(self) -> Iterable[str]:
        """Return the keys of all messages that were sent, in the order of their first sending."""
        return self._sent

    @property
    def landed_keys(self) -> set[str]:
        """Return the keys of all messages that landed."""
        return set(self._landed)

    def verdict(self) -> Verdict:
        """Return the faults so far. The result is meaningful once no message is in flight."""
        counts = Counter(self._landed)
        last_of: dict[str | None, int] = {}
        disordered: list[str] = []
        for key in dict.fromkeys(self._landed):
            stream, place = self._sent.get(key, (None, 0))
            if stream is not None:
                if place < last_of.get(stream, -1):
                    disordered.append(key)
                last_of[stream] = max(place, last_of.get(stream, -1))
        return Verdict(
            lost=[
                key
                for key in self._acknowledged
                if key not in counts and key not in self._discarded
            ],
            unexpected=[key for key in counts if key not in self._sent or key in self._discarded],
            doubled=[
                key for key, count in counts.items() if count > 1 and key not in self._may_repeat
            ],
            disordered=disordered,
        )

    def __repr__(self) -> str:
        return (
            f"<Oracle sent={len(self._sent)} acknowledged={len(self._acknowledged)} "
            f"landed={len(self._landed)}>"
        )
