"""The form in which a room explains the events that it logs.

Each room with log lines has a module ``log_events`` with a table of these. ``make docs-reference``
makes ``docs/reference/log-events.md`` of the tables and of the log calls, and a test compares both
ways: no event without a sentence, no sentence without an event.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event of the log: the first word of its line, its meaning, and what to do next.

    The level is that of the log calls with this name, so no table repeats it.
    """

    name: str
    """Name such as ``sender.dead``. PROCESS stands for the name of a process."""
    meaning: str
    """Sentences that say what has happened, and what becomes of messages and callers."""
    action: str = ""
    """What an operator does next; empty if there is nothing to do."""
    fields: tuple[str, ...] = ()
    """Names of the fields of its lines, each with a type in :mod:`srmp_spark.logs.fields`.

    Pipelines that read lines of JSON rely on the names. A test compares them with the log calls.
    """
