"""The call ``queues/{q}/give-up``: turn damaged rows into counted holes.

Readers, sealing (packing old rows into files) and the Delta state can then pass the damaged rows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, ProcessMustEndError, StoreError
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.tables import queues

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

log = logging.getLogger(__name__)


class GiveUpApi:
    """Handles the call ``POST queues/{q}/give-up``."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def post(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/give-up?first=N&last=M[&force=1]``: give up the rows of a range.

        The rows ``first`` to ``last``, both included, become holes for all readers, even those that
        can be read. For their senders these rows count as purged. The answer is
        ``{"queue","given_up"}``, the number of rows that became holes; sequences that were holes
        before do not count. Raises a 409 if the queue does not hold the whole range, and a 400 for
        an invalid range or a journal. Also raises a 409 if no row of the queue was found damaged,
        because a typing error must not cost readable rows; ``force`` skips this check.
        """
        manager = self._manager
        queue = manager.catalogue.find_base(request.parameters["queue"])
        first, last = request.required_integer("first"), request.required_integer("last")
        if not 0 < first <= last:
            raise usage("first and last are sequences: 1 or more, last not before first")

        if not queue.damage and not request.integer("force"):
            text = (
                f"no row of {queue.name} was found damaged since the last start, or "
                "since rows were given up"
            )
            hint = (
                f"srmp-spark peek --queue '{queue.name}' reads the queue; give-up "
                "--force also discards rows that can be read"
            )
            raise ApiError(409, "not-damaged", text, hint)

        def give_up(transaction: Transaction) -> int:
            given_up = queues.give_up(
                transaction, queue.name, first, last, manager.directory.segments
            )
            manager.decide(transaction, queue, [(first, last)], Reason.PURGED)
            return given_up

        try:
            rows = await manager.journal.transact(give_up)
        except ProcessMustEndError:
            raise
        except StoreError as error:
            raise ApiError(
                409, "not-held", str(error), "the status of the queue shows which rows it holds"
            ) from None
        queue.cut([(first, last)])
        # If other rows are still damaged, the next reader of them reports it again.
        queue.damage.clear()
        queue.marks_moved()
        manager.garbage.set()
        log.warning(
            "queue.given_up name=%s first=%d last=%d rows=%d", queue.name, first, last, rows
        )
        return Response.json({"queue": queue.name, "given_up": rows})
