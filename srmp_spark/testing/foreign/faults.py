"""Decide which fault strikes which POST, by a seed or a written list.

A schedule is a text: ``NAME=CHANCE`` or ``NAME=CHANCE:SECONDS``, separated by commas, and
``@N=NAME`` or ``@N=NAME:SECONDS`` for the N-th POST. With one seed the N-th POST meets the same
fault in every run, so a run can be repeated.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import NamedTuple

POST_FAULTS: dict[str, str] = {
    "drop-before": "close before reading",
    "drop-after": "accept, close before answering",
    "drop-middle": "accept, close in the middle of the answer",
    "400": "refuse for good; always the same messages",
    "NNN": "any other status from 300 to 599, accept nothing: 503, 500, 502, 404, a 301 "
    "that leads astray …",
    "garbage": "accept, answer something that is not HTTP",
    "continue": "accept, answer a thousand times 100, then 200",
    "huge": "accept, announce a gigabyte with the 200, write a few megabytes of it and close",
    "slow": "wait before accepting",
    "restart": "accept, then restart without an answer, down for SECONDS, state kept",
    "memory-lost": "accept, then restart without an answer, down for SECONDS, everything forgotten",
    "down": "close the port and all connections for SECONDS",
}
"""Name → meaning of each fault of a POST.

``NNN`` stands for any HTTP status from 300 to 599. SECONDS are those of the schedule. At most one
fault strikes a POST. Only a whole 200 tells a sender that its message is delivered.
"""
RECEIPT_FAULTS: dict[str, str] = {
    "receipt-late": "the stream receipt waits SECONDS more, others may pass it",
    "receipt-twice": "it is sent a second time",
    "receipt-old": "after it comes one for an earlier number of the stream",
    "receipt-foreign": "before it comes one for a stream that does not exist",
    "receipt-beyond": "before it comes one for a number far above what was sent",
    "receipt-none": "no stream receipt at all goes out for SECONDS",
}
"""Name → meaning of each fault of a stream receipt. Several may strike one receipt."""
SECONDS = 1.0
"""Duration of a fault for which the schedule names none, in seconds."""


class Fate(NamedTuple):
    """The fault of one POST: its name and its duration in seconds. An empty name means no fault."""

    name: str = ""
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Faults:
    """A schedule of faults.

    ``chances`` maps the name of a fault to its chance (0 to 1) and its duration in seconds.
    ``written`` maps the number of a POST, from 1, to its fault. ``seed`` decides which POSTs the
    chances strike.
    """

    chances: dict[str, tuple[float, float]] = field(default_factory=dict)
    written: dict[int, Fate] = field(default_factory=dict)
    seed: int = 1

    @classmethod
    def parse(cls, text: str, seed: int = 1) -> Faults:
        """Return the schedule that ``text`` describes, in the form of the module's docstring.

        Raises :class:`ValueError` that names the first wrong entry.
        """
        chances: dict[str, tuple[float, float]] = {}
        written: dict[int, Fate] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            match = re.fullmatch(
                r"(?:@([0-9]+)=([a-z0-9-]+)|([a-z0-9-]+)=([0-9.]+))(?::([0-9.]+))?", entry
            )
            name = match and (match[2] or match[3])
            known = name is not None and (
                name in POST_FAULTS or re.fullmatch("[345][0-9]{2}", name)
            )
            if match is None or not (known or (name in RECEIPT_FAULTS and match[3])):
                raise ValueError(
                    f"not a fault: {entry!r}; faults are "
                    f"{', '.join((*POST_FAULTS, *RECEIPT_FAULTS))}"
                )
            wait = float(match[5]) if match[5] else SECONDS
            if match[1]:
                written[int(match[1])] = Fate(match[2], wait)
            else:
                chances[match[3]] = float(match[4]), wait
        return cls(chances, written, seed)

    def of_post(self, n: int) -> Fate:
        """Return the fault of POST number ``n``, from 1; the same in every call.

        A chance of ``400`` is left out, because it strikes messages and not POSTs: see
        :meth:`refuses`. The fault ``400`` is returned only if the schedule names it for this POST
        (``@N=400``).
        """
        if n in self.written:
            return self.written[n]
        dice = random.Random(f"{self.seed}/post/{n}").random()
        for name, (chance, wait) in self.chances.items():
            if name != "400" and name not in RECEIPT_FAULTS:
                if dice < chance:
                    return Fate(name, wait)
                dice -= chance
        return Fate()

    def refuses(self, lineage: str, uniquifier: int) -> bool:
        """Return whether the chance of ``400`` strikes the message with this identifier.

        The result is the same each time that the message is sent.
        """
        chance = self.chances.get("400", (0.0, 0.0))[0]
        return random.Random(f"{self.seed}/400/{lineage}/{uniquifier}").random() < chance

    def of_receipt(self, n: int) -> dict[str, float]:
        """Return the faults of stream receipt number ``n``, from 1: name → duration in seconds."""
        dice = random.Random(f"{self.seed}/receipt/{n}")
        drawn = {name: dice.random() for name in RECEIPT_FAULTS}
        return {
            name: self.chances[name][1]
            for name, value in drawn.items()
            if value < self.chances.get(name, (0.0, 0.0))[0]
        }
