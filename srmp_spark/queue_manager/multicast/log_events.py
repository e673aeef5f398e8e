"""Explain the log events of receiving by multicast (PGM)."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "pgm.deaf",
        "A queue cannot receive from its multicast address: the interface is gone or has no IPv4 "
        "address.",
        "Bring the interface back; the group is joined again by itself.",
        fields=("queue", "address", "reason"),
    ),
    LogEvent(
        "pgm.joined_again",
        "The interface was made anew, and the group was joined again.",
        fields=("queue", "address", "interface", "because"),
    ),
    LogEvent(
        "pgm.listening",
        "A queue listens on its multicast address.",
        fields=("queue", "address", "interface"),
    ),
    LogEvent(
        "pgm.losses_not_stored",
        "Lost packets could not be recorded in the table `pgm_loss`. The lines `pgm.lost` have "
        "them.",
        "Check the disk.",
    ),
    LogEvent(
        "pgm.lost",
        "Packets of a source did not arrive, or were not accepted, so their messages are no "
        "rows. `reason` says why; the table `pgm_loss` has every loss.",
        "For `trail` and `retries`, raise the source's window or lower its rate (`txw_max_rte`); "
        "for `limit`, look at `[pgm_constants]`.",
        fields=("queue", "address", "source", "tsi", "first", "last", "packets", "reason"),
    ),
    LogEvent(
        "pgm.lost_more",
        "More losses than are logged one by one. All are in the table `pgm_loss`.",
        fields=("events",),
    ),
    LogEvent(
        "pgm.packet_failed",
        "A fault of srmp-spark with one packet. Other packets are read.",
        "Report the traceback.",
        fields=("queue", "source", "type"),
    ),
    LogEvent(
        "pgm.session_ended",
        "A source ended, or was silent for too long.",
        fields=("queue", "session", "reason"),
    ),
    LogEvent(
        "pgm.session_opened",
        "A source was heard for the first time.",
        fields=("queue", "session", "first"),
    ),
    LogEvent(
        "pgm.source_refused",
        "More sources send to the address than may be heard at once. Packets of this one are "
        "left out.",
        "Raise `sessions_max` in `[pgm_constants]`, if the sources are yours.",
        fields=("queue", "address", "session", "packets"),
    ),
)
