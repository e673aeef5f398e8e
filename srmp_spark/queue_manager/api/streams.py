"""Calls of ``streams/{queue}/{action}``: an operator's decisions about incoming streams."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.srmp.receiving.incoming_streams import IncomingStream
from srmp_spark.srmp.receiving.stream_name import StreamName, name_of_house_stream

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

ACTIONS = ("accept-gap", "reset", "drop")

log = logging.getLogger(__name__)


class StreamsApi:
    """Handles the calls of ``streams/{queue}/{action}``."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def post(self, request: Request) -> Response:
        """Answer ``POST streams/{queue}/{action}?stream=ID[&gap_at=N]``: decide about a stream.

        ``ID`` is the identifier of the stream or the GUID of its sender. ``accept-gap`` gives up
        the missing messages, and the stream's next message is accepted. Raises a 409 if nothing is
        missing now, or if ``gap_at`` is given and other messages are missing now than the operator
        saw. ``reset`` and ``drop`` forget the stream; the sender's next ``<start>`` begins the
        stream again. An unknown action raises a 400, and an unknown stream a 404.
        """
        manager = self._manager
        action = request.parameters["action"]
        if action not in ACTIONS:
            raise usage(
                f"unknown action {action!r}",
                f"known for incoming streams: {', '.join(ACTIONS)}",
            )
        queue = request.parameters["queue"]
        if all(stream.queue != queue for stream in manager.receiver.streams):
            # A stream of a redirection has a name that no local queue has.
            queue = manager.catalogue.find(queue).name
        wanted = request.text("stream")
        if not wanted:
            raise usage("stream is missing", "`srmp-spark streams` lists the identifiers")
        guid = wanted.lower().removeprefix("uid:").partition("\\")[0]
        gap_at = request.integer("gap_at") if action == "accept-gap" else None
        stream = manager.receiver.streams.get(StreamName(queue), guid)
        # A stream of this queue manager itself has another name. `srmp-spark streams` shows its
        # queue.
        ours = manager.receiver.streams.get(name_of_house_stream(queue), guid)
        if ours is not None and (stream is None or str(ours.id).lower() == wanted.lower()):
            stream = ours
        if stream is None or ("\\" in wanted and str(stream.id).lower() != wanted.lower()):
            # An earlier call may have dropped the stream just now. Then this 404 confirms as much
            # as the 200 of that call.
            await _stored(manager)
            live = "none" if stream is None else str(stream.id)
            message = (
                f"no stream {wanted} comes into {queue}; the live stream of that sender: {live}"
            )
            raise ApiError(404, "unknown-stream", message, "`srmp-spark streams` lists them")
        text = str(stream.id)
        if action == "accept-gap":
            if gap_at is not None and stream.gap_at not in (None, gap_at):
                raise _another_gap(stream, gap_at)
            if not manager.receiver.accept_gap(stream.queue, guid):
                raise _no_gap(stream)
        else:
            manager.receiver.drop_stream(stream.queue, guid)
        await _stored(manager)
        log.warning("stream.operated action=%s queue=%s stream_id=%s", action, queue, text)
        return Response.json({"queue": queue, "stream_id": text, "action": action})


async def _stored(manager: QueueManager) -> None:
    """Wait until all present changes of the engine are on stable storage.

    The changes are written with any transaction, so an empty one is enough. Raises the errors of
    the journal if they cannot be written.
    """
    await manager.journal.transact(lambda transaction: None)


def _another_gap(stream: IncomingStream, seen: int) -> ApiError:
    message = (
        f"of stream {stream.id} positions from {stream.gap_at} on are missing now, not from {seen}"
    )
    return ApiError(
        409,
        "another-gap",
        message,
        "check `srmp-spark streams` again before you give up any messages",
    )


def _no_gap(stream: IncomingStream) -> ApiError:
    """Return the 409 for ``accept-gap`` of a stream without a known gap.

    The missing messages may have arrived meanwhile. After a start a gap is unknown until a later
    message of the stream arrives again.
    """
    message = (
        f"nothing is missing from stream {stream.id} after "
        f"{stream.sequence_number}, as far as messages arrived since the start"
    )
    hint = (
        "`srmp-spark streams` shows gap_at as soon as a later message arrives; the "
        "sender repeats its messages (Windows: within 6 hours)"
    )
    return ApiError(409, "no-gap", message, hint)
