"""Transactions in which messages are received and moved ([MS-MQDMPR] 3.1.1.14).

A transaction records what happens to each of its messages at the outcome. The coordinator
([MS-DTCO]) is not part of this package: the owner of the server reports how a transaction ended.
Without a coordinator no transaction can be enlisted, so that no client receives in a transaction
that cannot end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from srmp_spark.mqrr.ndr.methods import SetClassRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.server.effects import Reason
from srmp_spark.mqrr.server.limits import (
    OPERATIONS_MAX,
    TIMED_OUT_KEPT,
    TRANSACTION_TIMEOUT_S,
    TRANSACTIONS_MAX,
)
from srmp_spark.mqrr.server.position_states import PositionState
from srmp_spark.mqrr.server.requests import Request
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.status import Status

NACK_RECEIVE_REJECTED = 0xC004
"""usClass of a message that its reader rejects."""


@dataclass(slots=True, eq=False)
class Operation:
    """TransactionalOperation: a message that leaves its queue if the transaction is committed.

    The operation is a Dequeue, or a Move if ``reason`` says so. Its request may still be searching
    for a message.
    """

    descriptor: OpenQueue
    request: Request
    reason: Reason = Reason.RECEIVED


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction that was enlisted and has no outcome yet."""

    id: bytes
    """Identifier of the transaction (XACTUOW)."""
    deadline: float
    """Time (monotonic seconds) at which the transaction is aborted if it has no outcome."""
    operations: list[Operation] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Return whether the transaction accepts no further operation."""
        return len(self.operations) >= OPERATIONS_MAX

    def find(self, descriptor: OpenQueue, lookup_id: int) -> Operation | None:
        """Return the operation on this message of this queue, or ``None``."""
        for each in self.operations:
            if each.descriptor.queue is descriptor.queue and each.request.found == lookup_id:
                return each
        return None

    def drop(self, request: Request) -> None:
        """Remove the operation of ``request`` from the transaction."""
        self.operations = [each for each in self.operations if each.request is not request]


class Transactions:
    """All transactions without an outcome (TransactionCollection)."""

    def __init__(self, *, coordinator: bool) -> None:
        """Create an empty collection; without a ``coordinator`` nothing can be enlisted."""
        self._coordinator = coordinator
        self._transactions: dict[bytes, Transaction] = {}
        self._timed_out: dict[bytes, None] = {}
        """Transactions that were aborted by their time-out, the oldest first."""

    def get(self, transaction: bytes) -> Transaction | None:
        """Return the transaction if it has no outcome yet, else ``None``."""
        return self._transactions.get(transaction)

    def pop(self, transaction: bytes) -> Transaction | None:
        """Remove the transaction, because it has an outcome now; return it, or ``None``."""
        return self._transactions.pop(transaction, None)

    def timed_out(self, transaction: bytes) -> None:
        """Remember that the time-out aborted a transaction, so that a later commit is refused.

        At TIMED_OUT_KEPT transactions the oldest is forgotten.
        """
        self._timed_out[transaction] = None
        if len(self._timed_out) > TIMED_OUT_KEPT:
            del self._timed_out[next(iter(self._timed_out))]

    def came_too_late(self, transaction: bytes) -> bool:
        """Return whether the time-out aborted the transaction, and forget that.

        A second call returns False, because the coordinator is notified once.
        """
        late = transaction in self._timed_out
        self._timed_out.pop(transaction, None)
        return late

    def enlist(self, transaction: bytes, now: float) -> Transaction | Status:
        """Process R_QMEnlistRemoteTransaction and return the new transaction.

        Return MQ_OK if it is enlisted already, or the status of the error. The transaction is
        aborted TRANSACTION_TIMEOUT_S after ``now`` (monotonic seconds) if it has no outcome by
        then.
        """
        if transaction == NO_TRANSACTION:
            return Status.MQ_ERROR_INVALID_PARAMETER
        if not self._coordinator:
            return Status.MQ_ERROR_TRANSACTION_ENLIST
        if transaction in self._transactions:
            return Status.MQ_OK
        if len(self._transactions) >= TRANSACTIONS_MAX:
            return Status.MQ_ERROR_INSUFFICIENT_RESOURCES
        self._timed_out.pop(transaction, None)
        made = self._transactions[transaction] = Transaction(
            transaction, now + TRANSACTION_TIMEOUT_S
        )
        return made

    def set_class(self, descriptor: OpenQueue, asked: SetClassRequest) -> Status:
        """Process R_SetUserAcknowledgementClass and return the status.

        A message with the class NACK_RECEIVE_REJECTED is rejected when its transaction is
        committed.
        """
        if not descriptor.may_receive:
            # The document says "opened with dwAccess set to MQ_RECEIVE_ACCESS": a reader that only
            # peeks cannot reject a message.
            return Status.MQ_ERROR_INVALID_HANDLE
        if asked.message_class not in (0, NACK_RECEIVE_REJECTED):
            return Status.MQ_ERROR_INVALID_PARAMETER
        if descriptor.queue.state_of(asked.lookup_id) is PositionState.GONE:
            return Status.MQ_ERROR_MESSAGE_NOT_FOUND
        for transaction in self._transactions.values():
            operation = transaction.find(descriptor, asked.lookup_id)
            if operation is not None and operation.reason is not Reason.MOVED:
                operation.reason = Reason.REJECTED if asked.message_class else operation.reason
                return Status.MQ_OK
        return Status.MQ_ERROR_TRANSACTION_USAGE

    def __repr__(self) -> str:
        return f"<Transactions open={len(self._transactions)}>"
