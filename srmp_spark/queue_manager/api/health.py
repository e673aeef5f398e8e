"""Answer ``GET status``, ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from srmp_spark.queue_manager.api.gauges import readings
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.api.port_side.queue_page import Page
from srmp_spark.queue_manager.api.port_side.sliced_json import sliced_json
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.queue_manager.api.status import (
    Transports,
    everything,
    facts,
    outgoing_status,
    status,
)
from srmp_spark.queue_manager.api.status_summary import finish_summary, summary
from srmp_spark.queue_manager.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager


class HealthApi:
    """Handles the paths without ``/v1``, and the call ``status``."""

    def __init__(
        self, manager: QueueManager, transports: Transports, *, listening: list[str], api: str
    ) -> None:
        self._manager = manager
        self._transports = transports
        self._listening = listening
        self._api = api
        self.ready = False
        """Whether both ports (SRMP and API) are open.

        The process sets this flag, and clears it when the ports drain.
        """

    async def healthz(self, request: Request) -> Response:
        """Answer ``GET /healthz``: 200, which shows that the process responds."""
        return Response(body=b"ok\n", content_type="text/plain; charset=utf-8")

    async def readyz(self, request: Request) -> Response:
        """Answer ``GET /readyz``: 200 if messages are accepted and rows can be read, else 503.

        The body of a 503 states the reason in a few words.
        """
        manager = self._manager
        gate = manager.gate.closed
        if gate is not None:
            return Response(503, gate.message.encode() + b"\n", "text/plain; charset=utf-8")
        if not self.ready or not manager.reader.is_up:
            return Response(503, b"not ready\n", "text/plain; charset=utf-8")
        return Response(body=b"ok\n", content_type="text/plain; charset=utf-8")

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``: all metrics, in the text format of Prometheus.

        For a caller that sees all queues, the sender process is asked for its status first, for two
        seconds at most. A caller whose API token is for some queues sees the samples of these
        queues, ``srmp_state_failed`` and ``srmp_state_lag_seconds``.
        """
        manager, sees = self._manager, None if request.sees_all else request.sees
        if sees is None:
            # The metric of the destinations reads the entries that this call has stored.
            await manager.outgoing.status()
        async with manager.slices.work() as work:
            text = await manager.metrics.text(readings(manager, self._transports), work, sees)
            return Response(body=text, content_type=CONTENT_TYPE)

    async def status(self, request: Request) -> Response:
        """Answer ``GET status``: the state of all that the caller's API token covers.

        With ``queues``, ``limit`` or ``after`` the answer has a page of the queues only, with
        ``summary=1`` only counts and the entries that need attention. Raises a 400 if both are
        given, or for an invalid field.
        """
        manager, sees = self._manager, everything if request.sees_all else request.sees
        page, is_summary = Page.of(request), request.text("summary", "0") in ("1", "true")
        if is_summary and not page.is_everything:
            raise usage(
                "summary covers all queues: queues, limit and after can only be used "
                "without summary"
            )
        ready = self.ready and manager.gate.closed is None
        answer = facts(manager, listening=self._listening, api=self._api, ready=ready)
        async with manager.slices.work() as work:
            if is_summary:
                answer |= await summary(manager, self._transports, sees, work)
            else:
                answer |= await status(manager, self._transports, page, sees, work)
        if request.sees_all:
            # Ask after the queues were read: forwarded rows move from the queues to the sender
            # process meanwhile, and must not be missing from both.
            outgoing = manager.outgoing
            entries = await outgoing.status()
            answer["outgoing_seen_at"] = rfc3339(outgoing.seen_at)
            answer["set_aside"] += outgoing.set_aside
            answer["dead_letters"] = outgoing.dead_letters
        else:
            entries = []
            self._leave_out(answer, sees)
        async with manager.slices.work() as work:
            if is_summary:
                answer = await finish_summary(answer, entries, work)
            else:
                for entry in entries:
                    answer["outgoing"].append(outgoing_status(entry))
                    await work.turn()
                # A client that knows a sequence's identifier can send in the name of the sequence's
                # client.
                answer["incoming_sequences"] = [
                    each
                    if request.allows("admin", each["queue"])
                    else each | {"sequence": None, "peer": None}
                    for each in answer["incoming_sequences"]
                ]
            return await sliced_json(answer, work)

    @staticmethod
    def _leave_out(answer: dict[str, Any], sees: Callable[[str], bool]) -> None:
        """Remove from ``answer`` the parts that an API token for some queues must not see.

        ``answer`` has the entries of ``GET status`` and is changed in place. Entries about queues
        that ``sees`` refuses are removed, and sums and reasons that cover all queues become empty.
        """
        if answer["multicast"] is not None:
            for part in ("deaf", "sources"):
                answer["multicast"][part] = [
                    each for each in answer["multicast"][part] if sees(each["queue"])
                ]
        answer["set_aside"] = []
        answer["blocked_urls"] = []
        if answer["last_backup"] is not None:
            answer["last_backup"] |= {"to": None}  # It is a path of the machine.
        state = answer["state"]
        state["rows_gone"] = [each for each in state["rows_gone"] if sees(str(each["queue"]))]
        if state["failed"] is not None:
            # A reason may name queues that the token does not cover.
            state["failed"]["reason"] = None
        answer["subscriptions"] = [
            each for each in answer["subscriptions"] if each["to"] and sees(each["to"])
        ]
        # The sum over all queues would reveal data about queues that the token does not cover. The
        # quota of one queue stays, because it applies to the token's queues too.
        answer["quota"] |= {"machine_bytes": None, "machine_bytes_waiting": None}
