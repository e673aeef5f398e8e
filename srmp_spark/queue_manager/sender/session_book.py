"""Which message has which number in a sequence, which wait for one, and which the destination may have, or has.

A queue may be on hold when the acknowledgement of its message comes. The message cannot be finished then: it went back to the
engine, which hands it out once more when the queue goes on. Until that time it is *taken*: it has no number any more, survives
the end and the loss of its sequence, and restarts, and is never sent again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from srmp_spark.srmp.outgoing_effects import Send
from srmp_spark.srmp.serial_runs import SerialRuns


class SessionBook:
    """Of one destination. A number stays with its serial until that message is finished, whatever is held meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[Send] = []
        """Without a number, by serial."""
        self.sends: dict[int, Send] = {}
        """By number; those of a queue that is on hold are not here."""
        self.serials: dict[int, int] = {}
        """Of every number whose message is neither finished nor taken."""
        self.doubt: set[int] = set()
        """Numbers that the destination may have."""
        self.taken: set[int] = set()
        """Serials of messages that were acknowledged while their queue was on hold."""
        self.ending: list[Send] = []
        """Those of them that were handed out once more; their end is about to be told."""
        self._numbers: dict[int, int] = {}

    def restore(self, serials: Mapping[int, int]) -> None:
        """As :meth:`saved` gave it. Every number may have left."""
        self.taken = {serial for number, serial in serials.items() if number < 0}
        self.serials = {number: serial for number, serial in serials.items() if number > 0}
        self.doubt = set(self.serials)
        self._numbers = {serial: number for number, serial in self.serials.items()}

    def saved(self) -> dict[int, int]:
        """Serials by number, for the store; what is taken stands under numbers below 0, which mean nothing else."""
        taken = sorted(self.taken)
        return self.serials | {at - len(taken): serial for at, serial in enumerate(taken)}

    def in_flight(self) -> tuple[tuple[int, int], ...]:
        """All numbers, as ascending runs."""
        runs = SerialRuns()
        for number in sorted(self.serials):
            runs.append(number, number)
        return tuple(runs)

    def number_of(self, send: Send) -> int | None:
        """``None``: it has none."""
        return self._numbers.get(send.serial)

    def wait(self, send: Send) -> None:
        """It waits for a number, in its place."""
        insort(self.waiting, send, key=lambda each: each.serial)

    def give(self, number: int, send: Send, *, is_held: bool) -> None:
        """It has a number, for good. ``is_held``: it went back to the engine meanwhile."""
        self.serials[number], self._numbers[send.serial] = send.serial, number
        again = next((each for each in self.waiting if each.serial == send.serial), None)
        if again is not None:  # held and let go on meanwhile: it must not get a second number
            self.waiting.remove(again)
            self.sends[number] = again
        elif not is_held:
            self.sends[number] = send

    def finish(self, number: int) -> None:
        """It is acknowledged, and its sending has ended."""
        self._numbers.pop(self.serials.pop(number, 0), None)

    def take(self, number: int) -> bool:
        """It is acknowledged, and its sending ended before that: whether that is news."""
        serial = self.serials.get(number)
        if serial is None:
            return False
        self.finish(number)
        self.taken.add(serial)
        return True

    def doubtful(self) -> list[int]:
        """The unfinished numbers that the destination may have."""
        return sorted(self.doubt & set(self.serials))

    def not_taken(self, runs: Iterable[tuple[int, int]]) -> None:
        """The destination has said for good that it has these and no others."""
        has = {number for first, last in runs for number in self.serials if first <= number <= last}
        self.doubt &= has

    def take_all(self, also: Iterable[Send] = ()) -> list[tuple[Send, bool]]:
        """Everything that is held, and whether the destination may have it; numbers stay what they are. The last first."""
        held = [(send, number in self.doubt) for number, send in self.sends.items()]
        held += [(send, True) for send in self.ending]
        held += [(send, False) for send in (*self.waiting, *also)]
        self.sends, self.waiting, self.ending = {}, [], []
        return sorted(held, key=lambda each: -each[0].serial)

    def begin_anew(self, also: Iterable[Send] = ()) -> None:
        """No number counts any more: all that is held waits."""
        self.waiting = sorted(
            [*self.sends.values(), *self.waiting, *also], key=lambda each: each.serial
        )
        self.sends, self.serials, self._numbers, self.doubt = {}, {}, {}, set()

    def __repr__(self) -> str:
        return (
            f"<SessionBook waiting={len(self.waiting)} numbered={len(self.serials)} "
            f"taken={len(self.taken)}>"
        )
