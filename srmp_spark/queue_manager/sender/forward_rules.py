"""Which redirections hold for a row of ``private$/forward$``: those under which it was accepted.

A message is accepted for where the redirections lead it then, and its sender is told 200. It may wait here while an operator
takes the redirection out of the configuration, or changes it, and starts again. By the new rules it could be for a queue of our
own, which takes nothing that we forwarded: an accepted message would end as a dead letter. So the outbox keeps the rules with
how far rows were accepted under them, as long as such a row may wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.names import LocalHosts
from srmp_spark.srmp.redirection import Forwarding, Redirections
from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.outbox.forward_place import Cursor, hold_forwarding
from srmp_spark.store.outbox.unreadable import set_fact_aside

RULES = "forward_rules"
"""Key in the table ``meta`` of the outbox."""
RULES_MAX = 16
"""Configurations that are remembered while rows of them wait: more are starts in a row, with nothing forwarded between."""


class Rules(NamedTuple):
    """A configuration, as far as it says where a message goes on to."""

    inbound: Redirections
    hosts: LocalHosts
    until: Cursor | None = None
    """The last row that was accepted under it; ``None``: it is the present one."""

    def forward_to(self, destination: str) -> str:
        """Where a message goes on to."""
        return Forwarding(inbound=self.inbound).forward_to(destination, self.hosts)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "inbound": self.inbound.dump(),
            "hosts": sorted(self.hosts.names),
            "until": self.until,
        }

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Rules:
        """From :meth:`dump`."""
        until = None if stored["until"] is None else Cursor(*stored["until"])
        return cls(
            Redirections.load(stored["inbound"]), LocalHosts(frozenset(stored["hosts"])), until
        )

    def is_like(self, other: Rules) -> bool:
        """Whether both lead every message to the same place."""
        return self._replace(until=None).dump() == other._replace(until=None).dump()


class ForwardRules(NamedTuple):
    """The rules for every row of the log."""

    kept: tuple[Rules, ...]
    """Oldest first; the last are the present ones."""

    @property
    def present(self) -> Rules:
        """What new messages are accepted under."""
        return self.kept[-1]

    def forward_to(self, destination: str, row: Cursor, epochs: Sequence[str]) -> str:
        """Where the message of ``row`` goes on to; ``epochs`` of the log in their order.

        Raises :class:`ConfigurationError` if that is ourselves.
        """
        to = next(
            rules for rules in self.kept if _was_accepted_by(rules.until, row, epochs)
        ).forward_to(destination)
        if self.present.hosts.is_target_here(to):
            raise ConfigurationError(
                f"no redirection leads {to} to another host any more: we do not forward "
                "to ourselves"
            )
        return to


def _was_accepted_by(until: Cursor | None, row: Cursor, epochs: Sequence[str]) -> bool:
    if until is None:
        return True
    if until.epoch not in epochs:
        return False  # all of it was read
    here, there = epochs.index(row.epoch), epochs.index(until.epoch)
    return (here, row.sequence) <= (there, until.sequence)


def load_rules(
    database: OutboxDatabase, present: Rules, accepted_to: Cursor, read_to: Cursor | None, at: int
) -> ForwardRules:
    """Return the rules of the rows that wait and the present ones, and store them.

    ``accepted_to``: the end of the log when the present configuration began, ``read_to``: how far the log is outgoing.
    Rules that cannot be read are set aside, and forwarding is held (:func:`.forward_place.held_because`): by other rules a
    message might go elsewhere.
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
    kept[-1] = present  # like the stored one, and knows our ports
    kept = [each for each in kept if each.until is None or not _is_read(each.until, read_to)][
        -RULES_MAX:
    ]
    if kept != stored:
        with database.transaction() as connection:
            text = json.dumps([each.dump() for each in kept])
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (RULES, text))
    return ForwardRules(tuple(kept))


def _is_read(until: Cursor, read_to: Cursor | None) -> bool:
    if until.sequence == 0:
        return True  # nothing was ever accepted
    return (
        read_to is not None and read_to.epoch == until.epoch and read_to.sequence >= until.sequence
    )
