"""Index the sequences of one destination by the address that their clients poll with WS-MakeConnection.

Theory of operation. A client that cannot be called asks for its acknowledgements by an address. One client may have a
thousand sequences under one address, so neither a search of all sequences nor a walk through those of the address may be
part of a request. So the index keeps, for each address, what a request asks: which sequence is owed an acknowledgement,
whether another client uses the address, and when it was asked last. A sequence has no flag of its own that could differ
from the index: :attr:`.InboundSequence.is_owed` reads it here.

The index holds no more than the sequences that exist: :meth:`PolledAddresses.add` and :meth:`PolledAddresses.remove` are
called where the table of sequences changes, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from srmp_spark.wsrm.namespaces import MAKE_CONNECTION_ANONYMOUS


class PolledAddress:
    """One address of WS-MakeConnection, and the sequences whose acknowledgements go there."""

    __slots__ = ("asked_at", "clients", "owed", "sequences")

    def __init__(self) -> None:
        self.sequences: dict[str, None] = {}
        self.owed: dict[str, None] = {}
        """Sequences with an acknowledgement that waits to be asked for, in the order in which they were owed it."""
        self.clients: Counter[str | None] = Counter()
        """How many of the sequences each authenticated name began; ``None``: without a name."""
        self.asked_at = -inf
        """Monotonic seconds of the last MakeConnection: it keeps all sequences of the address alive."""

    @property
    def next_owed(self) -> str:
        """The sequence that has waited longest to be asked for; empty: none waits."""
        return next(iter(self.owed), "")

    def is_shared_with_another(self, name: str | None) -> bool:
        """Return whether a client of another authenticated name than ``name`` began a sequence here."""
        return len(self.clients) > 1 or (bool(self.clients) and name not in self.clients)


class PolledAddresses:
    """All addresses of one destination."""

    def __init__(self) -> None:
        self._addresses: dict[str, PolledAddress] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def get(self, address: str) -> PolledAddress | None:
        """Return what is known of an address; ``None`` if no sequence uses it."""
        return self._addresses.get(address)

    def add(self, identifier: str, address: str, client: str | None) -> PolledAddress | None:
        """Take in a sequence that is new in the table, and return its place; ``None``: its client does not poll."""
        if not address.startswith(MAKE_CONNECTION_ANONYMOUS):
            return None
        polled = self._addresses.setdefault(address, PolledAddress())
        polled.sequences[identifier] = None
        polled.clients[client] += 1
        return polled

    def remove(self, identifier: str, address: str, client: str | None) -> None:
        """Forget a sequence that left the table."""
        polled = self._addresses.get(address)
        if polled is None:
            return
        del polled.sequences[identifier]
        polled.owed.pop(identifier, None)
        polled.clients[client] -= 1
        if not polled.clients[client]:
            del polled.clients[client]
        if not polled.sequences:
            del self._addresses[address]
