"""How long and how often a reliable session of ours does what, and what it says of its end."""

from __future__ import annotations

from srmp_spark.srmp.outgoing_reliable import HANDED_OUT_MAX
from srmp_spark.wsrm.source_effects import SourceSettings
from srmp_spark.wsrm.versions import Versions

IDLE_SECONDS = 10.0
"""A sequence in which nothing is to be sent is closed and terminated: below the ten minutes after which WCF drops one, and so
early that a service keeps no sessions of batches that are long over. The next message begins another one."""
CREATING_SECONDS = 600.0
"""And one that was never answered for is forgotten when nothing waits for it."""
END_TRIES = 4
"""CloseSequence or TerminateSequence without its answer: everything is acknowledged by then, so nothing depends on it."""
SILENT_ANSWERS = 4
"""Complete answers without an acknowledgement of what was asked for, until ``status`` tells: CXF answers 200 and nothing of a
sequence that it does not know."""
FALLS_AT_ONCE = 2
"""Sequences that a service may lose, one behind the other and nothing acknowledged between, before we wait as after any refused
attempt (``--retransmission-timeout``): a service that was started again loses one. One that makes sequences and knows none of
them got ten of them a second."""
TROUBLE_SECONDS = 0.5
"""The shortest pause after any trouble."""
WINDOW = HANDED_OUT_MAX // 2
"""Messages on their way at most where the destination says nothing of its room."""

LOST_PERHAPS = (
    "the service may have lost the sequence; if it stays so, `srmp-spark streams reset "
    "--destination D` goes on in a new one, "
    "and what it took of the last messages it gets twice"
)
LOST_AGAIN = (
    "the service made %d sequences and knew none of them a moment later (%s): are there "
    "several servers behind this address, "
    "each with sessions of its own? Then its load balancer must keep a client on one of them"
)
NO_SEQUENCE = (
    "%s: no CreateSequenceResponse, so perhaps no service with reliable sessions is at "
    "this address; are its path and its "
    "versions (rm, soap, addressing) right?"
)
LOST_WITH = (
    "the service has lost the sequence (%s) with %d messages of which nobody knows "
    "whether it took them: `srmp-spark streams "
    "resend --destination D` sends them again, `drop` gives them up"
)


def settings_of(url: str, versions: Versions, poll_interval: float) -> SourceSettings:
    """A sequence to a service."""
    rm, soap, addressing = versions
    return SourceSettings(
        to=url, soap=soap, addressing=addressing, rm=rm, window=WINDOW, poll_interval=poll_interval
    )
