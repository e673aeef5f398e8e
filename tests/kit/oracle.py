"""The judge of every reliability test: what was sent and acknowledged against what landed, after a full drain.

Four words, after Jepsen's ``total-queue`` checker. *Lost*: acknowledged and not landed. *Unexpected*: landed, never sent.
*Doubled*: landed more than once. *Disordered*: landed after a later message of its stream. What the receiver discarded on
purpose, for good, is not lost, and unexpected if it landed all the same. A message that was sent and never acknowledged may
have landed or not; both are right. Nothing here knows the answer in advance or how the system works.

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
    """What is wrong; all four lists are empty when nothing is."""

    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing is wrong."""
        return not (self.lost or self.unexpected or self.doubled or self.disordered)

    def __str__(self) -> str:
        return (
            f"lost {len(self.lost)}, unexpected {len(self.unexpected)}, "
            f"doubled {len(self.doubled)}, disordered {len(self.disordered)}"
        )


class Oracle:
    """The ledger. Keys are any text that names a message; each is sent under one key however often it is repeated."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[str | None, int]] = {}
        self._acknowledged: dict[str, None] = {}
        self._may_repeat: dict[str, None] = {}
        self._discarded: dict[str, None] = {}
        self._landed: list[str] = []

    def sent(self, key: str, *, stream: str | None = None, may_repeat: bool = False) -> None:
        """A message leaves for the first time; messages of one ``stream`` must land in the order of these calls.

        ``may_repeat``: it carries no identity, so it may land more than once.
        """
        if key not in self._sent:
            self._sent[key] = (stream, len(self._sent))
            if may_repeat:
                self._may_repeat[key] = None

    def acknowledged(self, key: str) -> None:
        """The receiver took the responsibility for it."""
        self._acknowledged[key] = None

    def discarded(self, key: str) -> None:
        """The receiver took the responsibility, and keeps no row: the message came too late. For good, on stable storage."""
        self._discarded[key] = None

    def landed(self, key: str) -> None:
        """It was read where messages end up; called in reading order."""
        self._landed.append(key)

    @property
    def sent_keys(self) -> Iterable[str]:
        """Everything that left, or was about to, in the order of :meth:`sent`."""
        return self._sent

    @property
    def landed_keys(self) -> set[str]:
        """Everything that arrived."""
        return set(self._landed)

    def verdict(self) -> Verdict:
        """What is wrong so far; meaningful once nothing is under way any more."""
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
