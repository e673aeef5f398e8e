"""States of the journal and one table of what it may do next.

A pair that the table does not have is a bug of srmp-spark.

    IDLE ──submitted──▶ SCHEDULED ──written──▶ COMMITTING ──synced──▶ IDLE
                            │                      └─synced, checkpoint follows──▶ CHECKPOINTING
                            └─nothing to write──▶ IDLE          CHECKPOINTING ──checkpointed──▶ IDLE

A fault in any open state leads to FAILED, and after FAILED only CLOSED follows.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
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


TRANSITIONS: dict[tuple[State, JournalEvent], State] = {
    (State.IDLE, JournalEvent.SUBMITTED): State.SCHEDULED,
    (State.SCHEDULED, JournalEvent.NOTHING_TO_WRITE): State.IDLE,
    (State.SCHEDULED, JournalEvent.WRITTEN): State.COMMITTING,
    (State.COMMITTING, JournalEvent.SYNCED): State.IDLE,
    (State.COMMITTING, JournalEvent.SYNCED_CHECKPOINT_FOLLOWS): State.CHECKPOINTING,
    (State.CHECKPOINTING, JournalEvent.CHECKPOINTED): State.IDLE,
    (State.IDLE, JournalEvent.FAULT): State.FAILED,
    (State.SCHEDULED, JournalEvent.FAULT): State.FAILED,
    (State.COMMITTING, JournalEvent.FAULT): State.FAILED,
    (State.CHECKPOINTING, JournalEvent.FAULT): State.FAILED,
    (State.IDLE, JournalEvent.CLOSE): State.CLOSED,
    (State.FAILED, JournalEvent.CLOSE): State.CLOSED,
}
"""Next state for each state and event; the journal takes its next state only from here."""
