"""The LookupIdentifier of a message: 64 bits that name it in its queue and say where it stands ([MS-MQDMPR] 3.1.1.12).

The high byte is 7 − priority, the other seven count what the queue manager has queued, so that numbers grow from the head
of a queue to its tail: by priority first, then by arrival. Two things follow that a reader must not forget:

* A read returns the low seven bytes alone (``pSequenceId``, [MS-MQRR] 3.1.4.7). :func:`rebuilt` puts the priority back.
* "greater than the last one that I read" loses messages: one of higher priority that comes later has a **lower** number, and so
  has one that was locked when we passed it and came back.

[MS-MQDMPR] 3.1.7.1.9 as printed sets the high byte only for messages with a transactional sequence and leaves 0 in all others,
against its own order by priority and against the public description of LookupId. We take that for an erratum, and
:func:`candidates` lets a client find out: first the rebuilt number, then the one with 0 on top.
"""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError

PRIORITY_MAX = 7
"""[MS-MQMQ] 2.2.19.1, BaseHeader.Flags.PR."""
SEQUENCE_BITS = 56
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
"""The least significant seven bytes, which ``pSequenceId`` carries."""


def rebuilt(sequence_id: int, *, priority: int, transactional: bool = False) -> int:
    """The LookupIdentifier of a message that a read returned with ``pSequenceId``.

    A transactional message counts as priority 0 whatever its header says ([MS-MQMQ] 2.2.19.1: it MUST be written 0). Raises
    :class:`LocalProtocolError` for numbers out of their range.
    """
    if not 0 <= priority <= PRIORITY_MAX or not 0 <= sequence_id <= SEQUENCE_MAX:
        raise LocalProtocolError(
            f"no lookup identifier has priority {priority} and sequence {sequence_id}"
        )
    return (PRIORITY_MAX - (0 if transactional else priority)) << SEQUENCE_BITS | sequence_id


def lookup_id_of(sequence_id: int, *, priority: int, transactional: bool) -> int:
    """:func:`rebuilt` of what another machine says. ``pSequenceId`` has eight bytes, and one that gives the whole identifier in
    them is understood; raises :class:`RemoteProtocolError` for any other number of more than seven."""
    found = rebuilt(sequence_of(sequence_id), priority=priority, transactional=transactional)
    if sequence_id not in (sequence_of(sequence_id), found):
        raise RemoteProtocolError(
            f"pSequenceId {sequence_id:#x} is neither seven bytes nor the identifier {found:#x}",
            section="[MS-MQRR] 3.1.4.7",
        )
    return found


def candidates(sequence_id: int, *, priority: int, transactional: bool = False) -> tuple[int, ...]:
    """What a message may be called, the likeliest first; one number where both readings agree."""
    return tuple(
        dict.fromkeys(
            (rebuilt(sequence_id, priority=priority, transactional=transactional), sequence_id)
        )
    )


def sequence_of(lookup_id: int) -> int:
    """The seven bytes that a server returns in ``pSequenceId``."""
    return lookup_id & SEQUENCE_MAX


def not_ascending(shown: str, before: str) -> RemoteProtocolError:
    """Return the error for a cursor that shows a message which is not after the last one: its walk could go on without end."""
    return RemoteProtocolError(
        f"the cursor does not go on: it shows message {shown} after {before}; the other "
        "queue manager is broken, or hostile",
        section="[MS-MQDMPR] 3.1.7.1.14",
    )
