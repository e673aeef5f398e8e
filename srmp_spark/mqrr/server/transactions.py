"""Calls that name a transaction ([MS-MQRR] 3.1.4.12 to 3.1.4.14): each is refused.

A transaction ends as its coordinator ([MS-DTCO]) decides, and srmp-spark has none. A message that
is received in a transaction without an outcome would stay locked, so no transaction is enlisted.
The other calls get the status of a transaction that the server does not know.
"""

from __future__ import annotations

from srmp_spark.mqrr.actions import RECEIVES, Action
from srmp_spark.mqrr.ndr.methods import EnlistRequest, SetClassRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.server.position_states import PositionState
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.status import Status

NACK_RECEIVE_REJECTED = 0xC004
"""usClass of a message that its reader rejects."""


def refuse_enlistment(asked: EnlistRequest) -> Status:
    """Return the status that refuses R_QMEnlistRemoteTransaction."""
    if asked.transaction == NO_TRANSACTION:
        return Status.MQ_ERROR_INVALID_PARAMETER
    return Status.MQ_ERROR_TRANSACTION_ENLIST


def refuse_receive(descriptor: OpenQueue, action: Action) -> Status:
    """Return the status that refuses R_StartTransactionalReceive with a transaction."""
    if not descriptor.queue.view.transactional or action not in RECEIVES:
        return Status.MQ_ERROR_TRANSACTION_USAGE
    # 3.1.4.13 creates a transaction without a name here, and the message would stay locked.
    return Status.MQ_ERROR_TRANSACTION_SEQUENCE


def refuse_class(descriptor: OpenQueue, asked: SetClassRequest) -> Status:
    """Return the status that refuses R_SetUserAcknowledgementClass.

    The class belongs to a message that was received in a transaction, and there is none.
    """
    if not descriptor.may_receive:
        # The document says "opened with dwAccess set to MQ_RECEIVE_ACCESS": a reader that only
        # peeks cannot reject a message.
        return Status.MQ_ERROR_INVALID_HANDLE
    if asked.message_class not in (0, NACK_RECEIVE_REJECTED):
        return Status.MQ_ERROR_INVALID_PARAMETER
    if descriptor.queue.state_of(asked.lookup_id) is PositionState.GONE:
        return Status.MQ_ERROR_MESSAGE_NOT_FOUND
    return Status.MQ_ERROR_TRANSACTION_USAGE
