"""Find the redirections under which a row of ``private$/forward$`` was accepted.

A message is accepted for the destination to which the redirections lead at that time, and its
sender receives a 200. The message may wait in ``private$/forward$`` while an operator removes or
changes the redirection and starts again. By the new rules the message could be for a local queue. A
local queue does not accept messages that this queue manager forwarded, so an accepted message would
become a dead letter. So the outbox keeps the old rules, and the last row that was accepted under
the old rules, as long as such a row may wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.names import LocalHosts
from srmp_spark.srmp.forward.redirection import Forwarding, Redirections
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace, hold_forwarding
from srmp_spark.store.outbox.tables.unreadable import set_fact_aside

RULES = "forward_rules"
"""Key of the stored redirection rules in the database table ``meta`` of the outbox."""
RULES_MAX = 16
"""Configurations that are remembered while their rows wait; older ones are forgotten.

More would be needed only after more starts in a row than this number, each with changed rules and
without a forwarded message.
"""


class Rules(NamedTuple):
    """The redirections and host names of a configuration, which decide where messages go."""

    inbound: Redirections
    hosts: LocalHosts
    until: ForwardPlace | None = None
    """The last row that was accepted under these rules, or ``None`` for the present rules."""

    def forward_to(self, destination: str) -> str:
        """Return the URL to which these rules forward a message for the URL ``destination``.

        This is ``destination`` itself if no redirection matches.
        """
        return Forwarding(inbound=self.inbound).forward_to(destination, self.hosts)

    def dump(self) -> dict[str, object]:
        """Return the rules as a dictionary for JSON, which :meth:`load` reads."""
        return {
            "inbound": self.inbound.dump(),
            "hosts": sorted(self.hosts.names),
            "until": self.until,
        }

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Rules:
        """Build the rules from the JSON form that :meth:`dump` returned.

        Raises an error of any of several types for other values; :func:`load_rules` handles them.
        """
        until = None if stored["until"] is None else ForwardPlace(*stored["until"])
        return cls(
            Redirections.load(stored["inbound"]), LocalHosts(frozenset(stored["hosts"])), until
        )

    def is_like(self, other: Rules) -> bool:
        """Return whether both rules are equal, so that they lead messages to the same destinations.

        :attr:`until` is not compared.
        """
        return self._replace(until=None).dump() == other._replace(until=None).dump()


class ForwardRules(NamedTuple):
    """The rules for every row of ``private$/forward$``."""

    kept: tuple[Rules, ...]
    """All rules, the oldest first. The last entry is the present rules."""

    @property
    def present(self) -> Rules:
        """Return the rules under which new messages are accepted."""
        return self.kept[-1]

    def forward_to(self, destination: str, row: ForwardPlace, epochs: Sequence[str]) -> str:
        """Return the destination to which the message of the row at ``row`` is forwarded.

        The rules under which the row was accepted decide. ``epochs`` are the epochs (incarnations
        of the data directory) of the stored log, the oldest first. Raises
        :class:`ConfigurationError` if the destination is this queue manager.
        """
        to = next(
            rules for rules in self.kept if _was_accepted_by(rules.until, row, epochs)
        ).forward_to(destination)
        if self.present.hosts.is_target_here(to):
            raise ConfigurationError(
                f"no redirection leads {to} to another host any longer, and this queue "
                "manager does not forward to itself"
            )
        return to


def _was_accepted_by(until: ForwardPlace | None, row: ForwardPlace, epochs: Sequence[str]) -> bool:
    if until is None:
        return True
    if until.epoch not in epochs:
        # All rows of that epoch were read.
        return False
    here, there = epochs.index(row.epoch), epochs.index(until.epoch)
    return (here, row.sequence) <= (there, until.sequence)


def load_rules(
    database: OutboxDatabase,
    present: Rules,
    accepted_to: ForwardPlace,
    read_to: ForwardPlace | None,
    at: int,
) -> ForwardRules:
    """Return the rules of the waiting rows and the present rules, and store them.

    ``accepted_to`` is the end of ``private$/forward$`` when the present configuration began, and
    ``read_to`` is the last row that was made outgoing. ``at`` is the present time in microseconds
    since 1970. Stored rules that cannot be read are set aside in the outbox, and forwarding is held
    (:func:`.forward_place.held_because`), because other rules might lead a message elsewhere. No
    error is raised for such rules.
    """
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (RULES,)).fetchone()
    if row is None and not present.inbound.rules:
        return ForwardRules((present,))
    try:
        stored = [] if row is None else [Rules.load(each) for each in json.loads(row[0])]
    except (SrmpSparkError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        with database.transaction() as connection:
            set_fact_aside(connection, RULES, reason, at)
            hold_forwarding(connection, f"{RULES} cannot be read: {reason}")
        stored = []
    kept = list(stored)
    if not kept or not kept[-1].is_like(present):
        if kept:
            kept[-1] = kept[-1]._replace(until=accepted_to)
        kept.append(present)
    # The present rules equal the stored ones, and also know the present ports.
    kept[-1] = present
    kept = [each for each in kept if each.until is None or not _is_read(each.until, read_to)][
        -RULES_MAX:
    ]
    if kept != stored:
        with database.transaction() as connection:
            text = json.dumps([each.dump() for each in kept])
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (RULES, text))
    return ForwardRules(tuple(kept))


def _is_read(until: ForwardPlace, read_to: ForwardPlace | None) -> bool:
    if until.sequence == 0:
        # No row was ever accepted under these rules.
        return True
    return (
        read_to is not None and read_to.epoch == until.epoch and read_to.sequence >= until.sequence
    )
