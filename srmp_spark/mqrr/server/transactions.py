"""Transactions that messages are received in ([MS-MQDMPR] 3.1.1.14): what is to become of which message at the outcome.

The coordinator, [MS-DTCO], is not part of this package: whoever owns the server says how a transaction ended. Where there is no
coordinator nothing is enlisted, so that nobody receives in a transaction that nobody can end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from srmp_spark.mqrr.server.effects import Reason
from srmp_spark.mqrr.server.requests import Request
from srmp_spark.mqrr.server.shared_queue import OpenQueue


@dataclass(slots=True, eq=False)
class Operation:
    """TransactionalOperation, of the kind Dequeue: a message that leaves its queue if the transaction is committed, or the
    request that still looks for one."""

    descriptor: OpenQueue
    request: Request
    reason: Reason = Reason.RECEIVED


@dataclass(slots=True, eq=False)
class Transaction:
    """One that was enlisted and has no outcome yet."""

    id: bytes
    """XACTUOW."""
    deadline: float
    """When it is aborted because nobody says anything."""
    operations: list[Operation] = field(default_factory=list)

    def find(self, descriptor: OpenQueue, lookup_id: int) -> Operation | None:
        """The operation on a message of this queue."""
        for each in self.operations:
            if each.descriptor.queue is descriptor.queue and each.request.found == lookup_id:
                return each
        return None

    def drop(self, request: Request) -> None:
        """The message is no part of it any more."""
        self.operations = [each for each in self.operations if each.request is not request]
