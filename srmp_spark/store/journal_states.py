"""States of the journal and one table of what it may do next.

A pair that the table does not have is a bug of srmp-spark.

    IDLE ──submitted──▶ SCHEDULED ──written──▶ COMMITTING ──synced──▶ IDLE
                            │                      └─synced, checkpoint follows──▶ CHECKPOINTING
                            └─nothing to write──▶ IDLE          CHECKPOINTING ──checkpointed──▶ IDLE

A fault in any open state leads to FAILED, and after FAILED only CLOSED follows.
"""

from __future__ import annotations

from enum import Enum


class JournalState(Enum):
    """Activities of the journal, which is in one of them."""

    IDLE = "idle"
    SCHEDULED = "scheduled"
    COMMITTING = "committing"
    CHECKPOINTING = "checkpointing"
    FAILED = "failed"
    CLOSED = "closed"


class JournalEvent(Enum):
    """Event that changes the state of the journal."""

    SUBMITTED = "submitted"
    NOTHING_TO_WRITE = "nothing to write"
    WRITTEN = "written"
    SYNCED = "synced"
    SYNCED_CHECKPOINT_FOLLOWS = "synced, checkpoint follows"
    CHECKPOINTED = "checkpointed"
    FAULT = "fault"
    CLOSE = "close"


TRANSITIONS: dict[tuple[JournalState, JournalEvent], JournalState] = {
    (JournalState.IDLE, JournalEvent.SUBMITTED): JournalState.SCHEDULED,
    (JournalState.SCHEDULED, JournalEvent.NOTHING_TO_WRITE): JournalState.IDLE,
    (JournalState.SCHEDULED, JournalEvent.WRITTEN): JournalState.COMMITTING,
    (JournalState.COMMITTING, JournalEvent.SYNCED): JournalState.IDLE,
    (JournalState.COMMITTING, JournalEvent.SYNCED_CHECKPOINT_FOLLOWS): JournalState.CHECKPOINTING,
    (JournalState.CHECKPOINTING, JournalEvent.CHECKPOINTED): JournalState.IDLE,
    (JournalState.IDLE, JournalEvent.FAULT): JournalState.FAILED,
    (JournalState.SCHEDULED, JournalEvent.FAULT): JournalState.FAILED,
    (JournalState.COMMITTING, JournalEvent.FAULT): JournalState.FAILED,
    (JournalState.CHECKPOINTING, JournalEvent.FAULT): JournalState.FAILED,
    (JournalState.IDLE, JournalEvent.CLOSE): JournalState.CLOSED,
    (JournalState.FAILED, JournalEvent.CLOSE): JournalState.CLOSED,
}
"""Next state for each state and event; the journal takes its next state only from here."""
