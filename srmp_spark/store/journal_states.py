"""What the journal may do next: one table, and an absent pair is a bug of ours.

    IDLE ──submitted──▶ SCHEDULED ──written──▶ COMMITTING ──synced──▶ IDLE
                            │                      └─synced, checkpoint follows──▶ CHECKPOINTING ──checkpointed──▶ IDLE
                            └─nothing to write──▶ IDLE

A fault, in whatever state, is FAILED, and only CLOSED follows.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What the journal is doing."""

    IDLE = "idle"
    SCHEDULED = "scheduled"
    COMMITTING = "committing"
    CHECKPOINTING = "checkpointing"
    FAILED = "failed"
    CLOSED = "closed"


class Event(Enum):
    """What moves it on."""

    SUBMITTED = "submitted"
    NOTHING_TO_WRITE = "nothing to write"
    WRITTEN = "written"
    SYNCED = "synced"
    SYNCED_CHECKPOINT_FOLLOWS = "synced, checkpoint follows"
    CHECKPOINTED = "checkpointed"
    FAULT = "fault"
    CLOSE = "close"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.IDLE, Event.SUBMITTED): State.SCHEDULED,
    (State.SCHEDULED, Event.NOTHING_TO_WRITE): State.IDLE,
    (State.SCHEDULED, Event.WRITTEN): State.COMMITTING,
    (State.COMMITTING, Event.SYNCED): State.IDLE,
    (State.COMMITTING, Event.SYNCED_CHECKPOINT_FOLLOWS): State.CHECKPOINTING,
    (State.CHECKPOINTING, Event.CHECKPOINTED): State.IDLE,
    (State.IDLE, Event.FAULT): State.FAILED,
    (State.SCHEDULED, Event.FAULT): State.FAILED,
    (State.COMMITTING, Event.FAULT): State.FAILED,
    (State.CHECKPOINTING, Event.FAULT): State.FAILED,
    (State.IDLE, Event.CLOSE): State.CLOSED,
    (State.FAILED, Event.CLOSE): State.CLOSED,
}
"""The journal looks its next state up here and nowhere else."""
