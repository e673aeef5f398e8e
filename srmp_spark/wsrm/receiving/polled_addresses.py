"""Index the sequences of one destination by the address that their clients poll.

Theory of operation. A client that cannot be called asks for its acknowledgements with
WS-MakeConnection, by an address. One client may have a thousand sequences under one address. So no
request may search all sequences, or walk through those of the address. The index keeps for each
address the facts that a request needs: which sequence has an acknowledgement that waits, whether
another client uses the address, and when the client asked last. A sequence has no flag of its own
that could differ from the index.

The index holds no more sequences than the table of sequences. :meth:`PolledAddresses.add` and
:meth:`PolledAddresses.remove` are called where that table changes, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS


class PolledAddress:
    """One address of WS-MakeConnection, with the sequences whose acknowledgements it collects."""

    __slots__ = ("asked_at", "clients", "owed", "sequences")

    def __init__(self) -> None:
        self.sequences: dict[str, None] = {}
        self.owed: dict[str, None] = {}
        """Sequences with an acknowledgement that waits for a MakeConnection.

        The sequence whose wait began first is first.
        """
        self.clients: Counter[str | None] = Counter()
        """Number of sequences that each authenticated name began.

        The key ``None`` counts those without a name.
        """
        self.asked_at = -inf
        """Time of the last MakeConnection, in seconds of the monotonic clock.

        A MakeConnection keeps all sequences of the address alive.
        """

    @property
    def next_owed(self) -> str:
        """Return the identifier of the sequence whose acknowledgement has waited longest.

        Return ``""`` if none waits. The wait does not end by this call.
        """
        return next(iter(self.owed), "")

    def is_shared_with_another(self, name: str | None) -> bool:
        """Return whether a client with another authenticated name than ``name`` uses the address.

        ``None`` is the name of all clients without one. A client uses the address if it began one
        of the address's sequences.
        """
        return len(self.clients) > 1 or (bool(self.clients) and name not in self.clients)


class PolledAddresses:
    """The index: all polled addresses of one destination."""

    def __init__(self) -> None:
        self._addresses: dict[str, PolledAddress] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def get(self, address: str) -> PolledAddress | None:
        """Return the entry of ``address``, or ``None`` if no sequence uses it."""
        return self._addresses.get(address)

    def add(self, identifier: str, address: str, client: str | None) -> PolledAddress | None:
        """Add a sequence that is new in the table, and return the entry of its address.

        ``client`` is the client's authenticated name. Return ``None`` if the address cannot be
        polled.
        """
        if not address.startswith(MAKE_CONNECTION_ANONYMOUS):
            return None
        polled = self._addresses.setdefault(address, PolledAddress())
        polled.sequences[identifier] = None
        polled.clients[client] += 1
        return polled

    def remove(self, identifier: str, address: str, client: str | None) -> None:
        """Remove a sequence that has left the table, with the acknowledgement that waits."""
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
