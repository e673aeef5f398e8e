"""Transactions that messages are received and moved in ([MS-MQDMPR] 3.1.1.14): what becomes of which message at the outcome.

The coordinator, [MS-DTCO], is not part of this package: whoever owns the server says how a transaction ended. Where there is no
coordinator nothing is enlisted, so that nobody receives in a transaction that nobody can end.
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
"""usClass of a message that its reader does not want."""


@dataclass(slots=True, eq=False)
class Operation:
    """TransactionalOperation: a message that leaves its queue if the transaction is committed (Dequeue, or Move if ``reason``
    says so), or the request that still looks for one."""

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

    @property
    def is_full(self) -> bool:
        """Whether it can take no more."""
        return len(self.operations) >= OPERATIONS_MAX

    def find(self, descriptor: OpenQueue, lookup_id: int) -> Operation | None:
        """The operation on a message of this queue."""
        for each in self.operations:
            if each.descriptor.queue is descriptor.queue and each.request.found == lookup_id:
                return each
        return None

    def drop(self, request: Request) -> None:
        """The message is no part of it any more."""
        self.operations = [each for each in self.operations if each.request is not request]


class Transactions:
    """TransactionCollection."""

    def __init__(self, *, coordinator: bool) -> None:
        """Without a ``coordinator`` nothing is enlisted."""
        self._coordinator = coordinator
        self._transactions: dict[bytes, Transaction] = {}
        self._timed_out: dict[bytes, None] = {}
        """The oldest first."""

    def get(self, transaction: bytes) -> Transaction | None:
        """One that has no outcome yet."""
        return self._transactions.get(transaction)

    def pop(self, transaction: bytes) -> Transaction | None:
        """It has one now."""
        return self._transactions.pop(transaction, None)

    def timed_out(self, transaction: bytes) -> None:
        """It was aborted because nobody said anything: what comes now comes too late."""
        self._timed_out[transaction] = None
        if len(self._timed_out) > TIMED_OUT_KEPT:
            del self._timed_out[next(iter(self._timed_out))]

    def came_too_late(self, transaction: bytes) -> bool:
        """Whether its coordinator decides after it was aborted here. Asked once: then it has been told."""
        late = transaction in self._timed_out
        self._timed_out.pop(transaction, None)
        return late

    def enlist(self, transaction: bytes, now: float) -> Transaction | Status:
        """R_QMEnlistRemoteTransaction: the new one; MQ_OK if it is there already, or why there is none."""
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
        """R_SetUserAcknowledgementClass: a message that was received is rejected if its transaction is committed."""
        if not descriptor.may_receive:
            # "opened with dwAccess set to MQ_RECEIVE_ACCESS": who only looks rejects nothing
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
