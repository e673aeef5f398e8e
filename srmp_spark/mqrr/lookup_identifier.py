"""The LookupIdentifier of a message: 64 bits that give its place in its queue.

See [MS-MQDMPR] 3.1.1.12. The high byte is 7 − priority. The other seven bytes count the messages
that the queue manager has queued. The numbers therefore grow from the head of a queue to its tail,
by priority first and then by arrival. A reader must know two consequences:

* A read returns only the low seven bytes (``pSequenceId``, [MS-MQRR] 3.1.4.7). :func:`rebuilt`
  adds the byte of the priority.
* Reading only messages "greater than the last one that I read" loses messages. A message of higher
  priority that arrives later has a **lower** number. A message that was locked when the reader
  passed it also has a lower number when its lock ends.

[MS-MQDMPR] 3.1.7.1.9 as printed sets the high byte only for messages with a transactional sequence
and leaves 0 in all others. This contradicts the order by priority in the same document and the
public description of LookupId, so this package treats it as an erratum. :func:`candidates` lets a
client try both readings: first the rebuilt number, then the number with 0 in its high byte.
"""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError

PRIORITY_MAX = 7
"""Highest priority of a message ([MS-MQMQ] 2.2.19.1, BaseHeader.Flags.PR)."""
SEQUENCE_BITS = 56
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
"""Largest number in the seven low bytes, which ``pSequenceId`` carries."""


def rebuilt(sequence_id: int, *, priority: int, transactional: bool = False) -> int:
    """Return the LookupIdentifier of a message whose read returned ``sequence_id``.

    A transactional message counts as priority 0 whatever its header says ([MS-MQMQ] 2.2.19.1: the
    priority MUST be written as 0). Raises :class:`LocalProtocolError` if a number is out of its
    range.
    """
    if not 0 <= priority <= PRIORITY_MAX or not 0 <= sequence_id <= SEQUENCE_MAX:
        raise LocalProtocolError(
            f"no lookup identifier has priority {priority} and sequence {sequence_id}"
        )
    return (PRIORITY_MAX - (0 if transactional else priority)) << SEQUENCE_BITS | sequence_id


def lookup_id_of(sequence_id: int, *, priority: int, transactional: bool) -> int:
    """Return the LookupIdentifier for a ``pSequenceId`` that another machine sent.

    ``pSequenceId`` has eight bytes. The seven low bytes alone and the whole identifier are both
    accepted. Raises :class:`RemoteProtocolError` for any other number of more than seven bytes.
    """
    found = rebuilt(sequence_of(sequence_id), priority=priority, transactional=transactional)
    if sequence_id not in (sequence_of(sequence_id), found):
        raise RemoteProtocolError(
            f"pSequenceId {sequence_id:#x} is neither seven bytes nor the identifier {found:#x}",
            section="[MS-MQRR] 3.1.4.7",
        )
    return found


def candidates(sequence_id: int, *, priority: int, transactional: bool = False) -> tuple[int, ...]:
    """Return the possible lookup identifiers of a message, the most likely first.

    Each reading of the specification gives one number. The result has a single number if both
    agree.
    """
    return tuple(
        dict.fromkeys(
            (rebuilt(sequence_id, priority=priority, transactional=transactional), sequence_id)
        )
    )


def sequence_of(lookup_id: int) -> int:
    """Return the low seven bytes of a lookup identifier, which servers send as ``pSequenceId``."""
    return lookup_id & SEQUENCE_MAX


def not_ascending(shown: str, before: str) -> RemoteProtocolError:
    """Return the error for a cursor that does not move forwards; the caller raises it.

    The cursor shows a message that is not after the previous message. A walk with such a cursor
    might never end. ``shown`` and ``before`` name the two messages.
    """
    return RemoteProtocolError(
        f"the cursor does not go on: it shows message {shown} after {before}; the other "
        "queue manager is broken, or hostile",
        section="[MS-MQDMPR] 3.1.7.1.14",
    )
