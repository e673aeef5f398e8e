"""Limits of this queue manager's reliable sessions, and error texts about lost sessions."""

from __future__ import annotations

from srmp_spark.srmp.sending.outgoing_reliable import HANDED_OUT_MAX
from srmp_spark.wsrm.codec.versions import Versions
from srmp_spark.wsrm.sending.source_effects import RmSourceSettings

IDLE_SECONDS = 10.0
"""Time without a message after which a sequence is closed and terminated, in seconds.

The time is below the ten minutes after which WCF drops a sequence. The time is short, so that a
service keeps no sessions of batches that ended long ago. The next message begins another sequence.
"""
CREATING_SECONDS = 600.0
"""Time after which a sequence without an answer is forgotten, in seconds.

It is kept while a message waits for it.
"""
END_TRIES = 4
"""Tries of CloseSequence or TerminateSequence without an answer.

Then the sequence is forgotten. Everything is acknowledged by then, so nothing depends on the
answer.
"""
SILENT_ANSWERS = 4
"""Consecutive answers without an acknowledgement after which ``status`` reports trouble.

CXF answers 200 without an acknowledgement if it does not know the sequence.
"""
FALLS_AT_ONCE = 2
"""Consecutive sequences that a service may lose, with nothing acknowledged between them.

From this number on the next attempt waits as after any refused attempt
(``--retransmission-timeout``). A service that was started again loses one sequence. A service that
creates sequences and at once loses each of them would otherwise get ten sequences a second.
"""
TROUBLE_SECONDS = 0.5
"""Shortest pause after a failed attempt, in seconds."""
WINDOW = HANDED_OUT_MAX // 2
"""Most messages in flight in one sequence if the destination does not state its free room."""

LOST_PERHAPS = (
    "the service may have lost the sequence; if this lasts, `srmp-spark "
    "streams reset --destination D` continues in a new sequence; the service "
    "then gets the last messages twice if it accepted them"
)
LOST_AGAIN = (
    "the service made %d sequences and knew none of them a moment later (%s): are there "
    "several servers behind this address, "
    "each with sessions of its own? Then its load balancer must keep a client on one of them"
)
NO_SEQUENCE = (
    "%s: no CreateSequenceResponse, so perhaps no service with reliable sessions is at "
    "this address; check its path and its versions (rm, soap, addressing)"
)
LOST_WITH = (
    "the service has lost the sequence (%s) with %d messages, and it is unknown "
    "whether it accepted them: `srmp-spark streams resend --destination D` sends "
    "them again, `drop` discards them"
)


def settings_of(url: str, versions: Versions, poll_interval: float) -> RmSourceSettings:
    """Return the settings of a sequence to the service at ``url``.

    ``versions`` states the versions of the protocols. ``poll_interval`` is in seconds.
    """
    rm, soap, addressing = versions
    return RmSourceSettings(
        to=url, soap=soap, addressing=addressing, rm=rm, window=WINDOW, poll_interval=poll_interval
    )
