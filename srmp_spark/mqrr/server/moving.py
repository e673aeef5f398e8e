"""R_OpenQueueForMove and R_MoveMessage: moves between a queue and its subqueues.

The document is [MS-MQRR] 3.1.4.10 and 3.1.4.11. A subqueue is a queue whose name is that of another
queue, a ``;`` and a name of its own. A move is like a receive whose reader is another queue. The
message is locked, one commit removes it from its queue and stores its place in the other queue, and
from then on it is there. A move in a transaction is refused (:mod:`.transactions`). A move decides
nothing about the message: receipts that it requested are sent when it is received from its new
queue.
"""

from __future__ import annotations

from collections.abc import Callable

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import MoveMessageRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.server.effects import CallId
from srmp_spark.mqrr.server.limits import REQUESTS_MAX
from srmp_spark.mqrr.server.position_states import PositionState
from srmp_spark.mqrr.server.receiving import Receiving
from srmp_spark.mqrr.server.requests import BodyLimits, ReceiveRequest
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.server.which_queue import JOURNAL_SUFFIX
from srmp_spark.mqrr.status import Status

_TRIES = 8
"""Number of attempts to find a free random number of 64 bits.

One collision is nearly impossible; eight in a row mean that the source is not random.
"""


def related(source: str, target: str) -> bool:
    """Return whether messages may be moved between two queues, named by canonical names.

    Moves are allowed from a queue to its subqueue, back, and between two of its subqueues. A
    journal is named like a subqueue but is read only.
    """
    if source == target or source.endswith(JOURNAL_SUFFIX) or target.endswith(JOURNAL_SUFFIX):
        return False
    return source.partition(";")[0] == target.partition(";")[0]


class Moving:
    """Keeps the queues to which messages may be moved, by move context.

    A move context is the random number by which R_MoveMessage names the handle of such a queue.
    """

    def __init__(self, receiving: Receiving, new_context: Callable[[], int]) -> None:
        """Create an empty table of move contexts.

        ``new_context`` returns a random number of 64 bits. A client that guesses one still needs
        the association to which the context belongs.
        """
        self._receiving = receiving
        self._new_context = new_context
        self._contexts: dict[int, tuple[Association[OpenQueue], OpenQueue]] = {}

    def opened(self, association: Association[OpenQueue], descriptor: OpenQueue) -> int:
        """Create, record and return the move context (pMoveContext) of a handle.

        A move context is the random number by which R_MoveMessage names the handle of the target
        queue.
        """
        context = next(
            (
                each
                for _ in range(_TRIES)
                if (each := self._new_context()) and each not in self._contexts
            ),
            None,
        )
        assert context is not None, "a random number of 64 bits is not taken eight times"
        self._contexts[context] = association, descriptor
        descriptor.move_context = context
        return context

    def closed(self, descriptor: OpenQueue) -> None:
        """Remove the move context of a handle that was closed or run down."""
        if descriptor.move_context is not None:
            self._contexts.pop(descriptor.move_context, None)

    def move(
        self,
        association: Association[OpenQueue],
        descriptor: OpenQueue,
        call: CallId,
        asked: MoveMessageRequest,
    ) -> Status | None:
        """Begin to move a message; return the status to answer now, or ``None``.

        ``None`` means that ``call`` is answered when the move is stored. A status is that of an
        error, and nothing moves.
        """
        if not descriptor.may_receive:
            return Status.MQ_ERROR_ACCESS_DENIED
        owner, to = self._contexts.get(asked.move_context, (None, None))
        if to is None or owner is not association:
            return Status.MQ_ERROR_INVALID_HANDLE
        if to.stale is not None:
            return to.stale
        queue, target = descriptor.queue, to.queue.view
        if not related(queue.view.name, target.name):
            return Status.STATUS_INVALID_PARAMETER
        in_transaction = asked.transaction != NO_TRANSACTION
        if in_transaction and not target.transactional:
            return Status.MQ_ERROR_TRANSACTION_USAGE
        state = queue.state_of(asked.lookup_id)
        if state is PositionState.GONE:
            return Status.MQ_ERROR_MESSAGE_NOT_FOUND
        if state is not PositionState.AVAILABLE:
            return Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
        if in_transaction:
            return Status.MQ_ERROR_TRANSACTION_SEQUENCE
        if len(descriptor.requests) + len(descriptor.unsettled) >= REQUESTS_MAX:
            return Status.MQ_ERROR_INSUFFICIENT_RESOURCES
        if queue.view.holds_receivers():
            return Status.MQ_ERROR_SHARING_VIOLATION
        request = ReceiveRequest(
            call=None,
            id=0,
            action=Action.LOOKUP_RECEIVE_CURRENT,
            lookup_id=asked.lookup_id,
            limits=BodyLimits(0, 0),
            to=target,
        )
        self._receiving.move(descriptor, call, request, asked.lookup_id)
        return None

    def __repr__(self) -> str:
        return f"<Moving open={len(self._contexts)}>"
