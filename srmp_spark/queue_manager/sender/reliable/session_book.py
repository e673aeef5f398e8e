"""State of each message of a sequence: its number, and whether the destination may have it.

A *number* is the number of a message in the sequence; a *serial* is its number in its outgoing
queue. A queue may be on hold when the acknowledgement of its message is received. The message
cannot be finished then: it was returned to the engine, which hands it out again when the queue
resumes. Until that time the message is *taken*. A taken message has no number any longer, and is
never sent again. The taken state survives restarts, and the end and the loss of the sequence.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from srmp_spark.srmp.sending.outgoing_effects import Send
from srmp_spark.srmp.sending.serial_runs import SerialRuns


class SessionBook:
    """Records the messages of one destination and their numbers.

    A number stays with its serial until that message is finished, even if the queue is held
    meanwhile.
    """

    def __init__(self) -> None:
        self.waiting: list[Send] = []
        """Messages without a number, in ascending order of their serials."""
        self.sends: dict[int, Send] = {}
        """Messages by number, without those of a queue that is on hold."""
        self.serials: dict[int, int] = {}
        """The serial of each number whose message is neither finished nor taken, by number."""
        self.doubt: set[int] = set()
        """Numbers of messages that the destination may have."""
        self.acknowledged_on_hold: set[int] = set()
        """Serials of messages that were acknowledged while their queue was on hold."""
        self.ending: list[Send] = []
        """Taken messages that were handed out again.

        The end of these messages is about to be reported.
        """
        self._numbers: dict[int, int] = {}

    def restore(self, serials: Mapping[int, int]) -> None:
        """Replace the state by the one that :meth:`saved` returned.

        All numbers are in doubt then, because each message may have been sent.
        """
        self.acknowledged_on_hold = {serial for number, serial in serials.items() if number < 0}
        self.serials = {number: serial for number, serial in serials.items() if number > 0}
        self.doubt = set(self.serials)
        self._numbers = {serial: number for number, serial in self.serials.items()}

    def saved(self) -> dict[int, int]:
        """Return the serials by number, for the store.

        Taken messages have unique numbers below 0, which have no other meaning.
        """
        taken = sorted(self.acknowledged_on_hold)
        return self.serials | {at - len(taken): serial for at, serial in enumerate(taken)}

    def in_flight(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers whose messages are neither finished nor taken.

        The result has ascending runs (first, last), both included.
        """
        runs = SerialRuns()
        for number in sorted(self.serials):
            runs.append(number, number)
        return tuple(runs)

    def number_of(self, send: Send) -> int | None:
        """Return the number of a message in the sequence, or ``None`` if it has none."""
        return self._numbers.get(send.serial)

    def wait(self, send: Send) -> None:
        """Insert a message among those that wait for a number, by its serial."""
        insort(self.waiting, send, key=lambda each: each.serial)

    def give(self, number: int, send: Send, *, is_held: bool) -> None:
        """Assign ``number`` to a message; it stays until the message is finished.

        ``is_held`` states that the message was returned to the engine meanwhile. Then it is not
        among :attr:`sends`, unless it was posted again.
        """
        self.serials[number], self._numbers[send.serial] = send.serial, number
        again = next((each for each in self.waiting if each.serial == send.serial), None)
        if again is not None:
            # The queue was held and resumed meanwhile: the message must not get a second number.
            self.waiting.remove(again)
            self.sends[number] = again
        elif not is_held:
            self.sends[number] = send

    def finish(self, number: int) -> None:
        """Forget ``number``, because its message is acknowledged."""
        self._numbers.pop(self.serials.pop(number, 0), None)

    def take(self, number: int) -> bool:
        """Mark the message of ``number`` as taken: acknowledged while its queue was on hold.

        Return ``False``, and do nothing, if the number was finished or taken before.
        """
        serial = self.serials.get(number)
        if serial is None:
            return False
        self.finish(number)
        self.acknowledged_on_hold.add(serial)
        return True

    def doubtful(self) -> list[int]:
        """Return the unfinished numbers that the destination may have, in ascending order."""
        return sorted(self.doubt & set(self.serials))

    def not_taken(self, runs: Iterable[tuple[int, int]]) -> None:
        """Remove from :attr:`doubt` all numbers that are not in ``runs`` (first, last included).

        Called when a Final acknowledgement stated that the destination has these numbers and no
        others.
        """
        has = {number for first, last in runs for number in self.serials if first <= number <= last}
        self.doubt &= has

    def take_all(self, also: Iterable[Send] = ()) -> list[tuple[Send, bool]]:
        """Remove and return all messages, each with whether the destination may have it.

        The highest serial is first. Numbers stay assigned. ``also`` are further messages without a
        number, which are returned too.
        """
        held = [(send, number in self.doubt) for number, send in self.sends.items()]
        held += [(send, True) for send in self.ending]
        held += [(send, False) for send in (*self.waiting, *also)]
        self.sends, self.waiting, self.ending = {}, [], []
        return sorted(held, key=lambda each: -each[0].serial)

    def begin_anew(self, also: Iterable[Send] = ()) -> None:
        """Discard all numbers. The messages, and those of ``also``, wait for new numbers.

        Taken messages stay taken.
        """
        self.waiting = sorted(
            [*self.sends.values(), *self.waiting, *also], key=lambda each: each.serial
        )
        self.sends, self.serials, self._numbers, self.doubt = {}, {}, {}, set()

    def __repr__(self) -> str:
        return (
            f"<SessionBook waiting={len(self.waiting)} numbered={len(self.serials)} "
            f"taken={len(self.acknowledged_on_hold)}>"
        )
