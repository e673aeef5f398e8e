"""Judge the numbers of a cut-over: is it safe, what is in the way, and what is to be done.

The module does no I/O. A finding that *blocks* makes the answer "not safe". Any other finding tells
the operator what the cut-over will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from srmp_spark.interface import CutoverFinding
from srmp_spark.queue_manager.configuration.subscriptions import Subscription


class Phase(Enum):
    """The phases of a subscription, as :mod:`srmp_spark.queue_manager.puller.cutover` explains."""

    COPYING = "copying"
    SETTLING = "settling"
    MOVED = "moved"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class CutoverNumbers:
    """What is known of the messages of one subscription. The defaults block nothing."""

    phase: Phase
    consumers: tuple[str, ...]
    still_there: int = 0
    """Messages with a row here whose originals are in the remote queue as well."""
    received_there: int = 0
    """Messages with a row here that other readers received in the remote queue."""
    moved: int = 0
    """Messages with a row here whose originals this queue manager has removed."""
    in_doubt: int = 0
    """Of ``moved``: those that were gone after a removal without an answer, since the start."""
    not_here: int = 0
    """Messages in the remote queue that have no row here."""
    locked_there: int = 0
    """Of ``still_there``: those that another reader holds."""
    unreadable: int = 0
    rowless: int = 0
    """Of ``still_there``: those whose row here was purged or given up."""
    received_here: int = 0
    """Of ``still_there``: those that a consumer here has received already."""
    received_twice: int = 0
    """Of ``received_there``: those that a consumer here has received already."""
    unplaced: int = 0
    """Of ``received_there``: those whose rows are not known, so they cannot be marked."""
    is_compared: bool = True
    """Whether a walk that began after the question has reached the end of the remote queue."""
    trouble: str | None = None
    """Reason why the remote queue cannot be read, or ``None``."""
    reader_there: bool = False
    """Whether another reader has the remote queue open to receive."""
    may_not_receive: str | None = None
    """Reason why the account may not receive from the remote queue, or ``None``."""
    held_here: str | None = None
    """Error that names the receiver which holds a consumer here, or ``None``."""


def findings_of(
    numbers: CutoverNumbers, subscription: Subscription, *, accepts_received: bool = False
) -> list[CutoverFinding]:
    """Return the findings about a subscription, those that block first.

    What blocks a subscription that copies makes a cut-over unsafe. What blocks one that is being
    cut over makes it too early for the readers here.

    With ``accepts_received``, messages that were received here already block nothing.
    """
    if numbers.phase is Phase.COPYING:
        found = [*_of_there(numbers), *_of_here(numbers, subscription, accepts_received)]
    else:
        found = _of_move(numbers, subscription)
    return sorted(found, key=lambda each: not each["blocks"])


def _of_move(numbers: CutoverNumbers, subscription: Subscription) -> list[CutoverFinding]:
    names = " or ".join(numbers.consumers)
    if numbers.phase is Phase.MOVING:
        text = "the subscription moves messages, and copied none: there is nothing to cut over"
        return [_finding("nothing-copied", 0, text, blocks=False)]
    found: list[CutoverFinding] = []
    if numbers.phase is Phase.SETTLING:
        text = (
            f"of {numbers.still_there} copied messages it is not decided who received them; "
            f"consumer {names} of {subscription.to} is held until then"
        )
        if numbers.trouble is not None:
            text += f". The remote queue is not read now: {numbers.trouble}"
        found.append(_finding("settling", numbers.still_there, text))
    if numbers.received_there:
        text = (
            f"{numbers.received_there} messages were received there: consumer {names} of "
            f"{subscription.to} is not given their rows (list: --received-there)"
        )
        found.append(_finding("received-there", numbers.received_there, text, blocks=False))
    if numbers.in_doubt:
        text = (
            f"{numbers.in_doubt} messages were gone after a removal without an answer: they count "
            "as moved, and another reader may have received them too"
        )
        found.append(_finding("in-doubt", numbers.in_doubt, text, blocks=False))
    return found


def _of_there(numbers: CutoverNumbers) -> list[CutoverFinding]:
    found: list[CutoverFinding] = []
    if numbers.trouble is not None:
        found.append(_finding("not-read", 1, f"the remote queue cannot be read: {numbers.trouble}"))
    elif not numbers.is_compared:
        found.append(
            _finding("not-compared", 1, "the comparison is not complete: wait longer (--wait)")
        )
    if numbers.locked_there:
        found.append(
            _finding(
                "locked-there",
                numbers.locked_there,
                f"{numbers.locked_there} messages are locked by a reader there: it may receive "
                "them or give them back; stop that reader, or wait for the end of its transaction",
            )
        )
    if numbers.reader_there:
        found.append(
            _finding(
                "reader-there",
                1,
                "a reader there has the queue open to receive: stop the readers there, all of them",
            )
        )
    if numbers.may_not_receive is not None:
        found.append(
            _finding(
                "may-not-receive",
                1,
                "the queue cannot be opened to receive, so nothing could be moved: "
                f"{numbers.may_not_receive}",
            )
        )
    if numbers.not_here:
        found.append(
            _finding(
                "not-here",
                numbers.not_here,
                f"{numbers.not_here} messages there are no rows here yet; the cut-over moves them",
                blocks=False,
            )
        )
    if numbers.unreadable:
        found.append(
            _finding(
                "unreadable",
                numbers.unreadable,
                f"{numbers.unreadable} messages there cannot be read, and stay there",
                blocks=False,
            )
        )
    return found


def _of_here(
    numbers: CutoverNumbers, subscription: Subscription, accepts_received: bool
) -> list[CutoverFinding]:
    found: list[CutoverFinding] = []
    names = " or ".join(numbers.consumers)
    if numbers.held_here is not None:
        found.append(
            _finding("reader-here", 1, f"{numbers.held_here}: start the readers here afterwards")
        )
    if numbers.received_twice:
        found.append(
            _finding(
                "received-twice",
                numbers.received_twice,
                f"{numbers.received_twice} messages were received there, and by consumer {names} "
                "here as well; that cannot be undone: if it is right, --accept-received",
                blocks=not accepts_received,
            )
        )
    if numbers.received_here:
        found.append(
            _finding(
                "received-here",
                numbers.received_here,
                f"consumer {names} has received {numbers.received_here} messages here that are "
                "still there; the cut-over removes them there. If that reader did the work, "
                "--accept-received; if it was a trial, copy anew: subscribe remove, then "
                "subscribe add --mode copy --to ANOTHER-QUEUE",
                blocks=not accepts_received,
            )
        )
    if numbers.unplaced:
        found.append(
            _finding(
                "unplaced",
                numbers.unplaced,
                f"{numbers.unplaced} messages were received there whose rows are not known, "
                "because an earlier build copied them or a [[redirect]] leads them to another "
                "queue. Copy anew: subscribe remove, then subscribe add --mode copy --to "
                "ANOTHER-QUEUE",
            )
        )
    if numbers.rowless:
        found.append(
            _finding(
                "no-row",
                numbers.rowless,
                f"{numbers.rowless} rows were purged here or given up, and their messages are "
                "still there: the cut-over moves them as new rows",
                blocks=False,
            )
        )
    if numbers.received_there:
        found.append(
            _finding(
                "received-there",
                numbers.received_there,
                f"{numbers.received_there} messages were received there: their rows in "
                f"{subscription.to} will be marked as received for consumer {names}",
                blocks=False,
            )
        )
    return found


def _finding(code: str, count: int, text: str, *, blocks: bool = True) -> CutoverFinding:
    return {"code": code, "count": count, "blocks": blocks, "text": text}
