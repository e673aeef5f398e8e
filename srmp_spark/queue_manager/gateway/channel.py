"""Exchange messages between the main process and a gateway: one end of the channel.

**Turns.** Bytes that the socket brings are kept, and messages are handled for at most TURN_SECONDS
in one turn of the loop. Messages that are left over are handled in the next turn, after the other
connections had theirs, and the socket is not read meanwhile. So the memory of this end is bounded
by one read of the loop and one frame.

**Back-pressure.** :meth:`Channel.send` never blocks. When more than CONGESTED_BYTES wait for the
other end, ``is_congested`` is true and the owner must stop producing until ``on_room`` is called. A
gateway pauses reading from its clients for that time. The main process bounds its messages by the
calls that the gateway has in flight.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.queue_manager.gateway.frames import FrameReader, encode_frame

TURN_SECONDS = 0.004
"""Longest time for which messages of one channel are handled in one turn of the loop, in seconds.

Other connections wait for at most that long. One message is always handled, so the handler of a
message must be short itself.
"""
CONGESTED_BYTES = 1024 * 1024
"""Bytes that may wait for the other end before ``is_congested`` is true.

This is a quarter of the largest body, and much more than the other end handles in one turn.
"""

_In = TypeVar("_In")
_Out = TypeVar("_Out", bound=msgspec.Struct)

log = logging.getLogger(__name__)


class Channel(asyncio.Protocol, Generic[_Out, _In]):
    """One end of the channel, an :class:`asyncio.Protocol`: sends and receives typed messages.

    Call all methods in the thread of the loop. ``on_lost`` and ``on_room`` are callbacks of the
    owner.
    """

    def __init__(
        self,
        types: Any,  # noqa: ANN401  # a union of Struct types is no type to mypy
        on_message: Callable[[_In], object],
        on_lost: Callable[[], object],
        on_room: Callable[[], object] = lambda: None,
    ) -> None:
        """Create one end of the channel.

        ``types`` is the union of the messages that may arrive. ``on_message`` is called for each of
        them, in order. An exception of ``on_message`` is logged, and the next message is handled.
        ``on_lost`` is called once when the connection to the other end is lost, but not after
        :meth:`close`. ``on_room`` is called when congestion has ended.
        """
        self._frames: FrameReader[_In] = FrameReader(types)
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._turn: asyncio.Handle | None = None
        """The call of the next turn in the loop, if messages are left over from the last turn."""
        self._is_held = False
        self._is_lost = False
        self.is_congested = False
        """Whether more than CONGESTED_BYTES wait, so that the owner must stop producing messages.
        """

    def __repr__(self) -> str:
        state = "lost" if self._is_lost else "held" if self._is_held else "open"
        return f"<Channel {state} unread={len(self._frames)} congested={self.is_congested}>"

    @property
    def is_open(self) -> bool:
        """Return whether the channel is connected and neither closed nor lost."""
        return self._transport is not None and not self._is_lost

    # --- sending ----------------------------------------------------------------------------------

    def send(self, message: _Out) -> bool:
        """Queue ``message`` for the other end, after all earlier ones.

        Return ``False``, without sending, if the channel is not open. ``True`` does not mean that
        the message arrives. Raises :class:`LimitExceededError` for a message above FRAME_MAX, which
        is not sent.
        """
        frame = encode_frame(message)
        if self._transport is None or self._is_lost:
            return False
        self._transport.write(frame)
        return True

    def close(self) -> None:
        """Close the channel after the messages that wait were sent, without waiting for that.

        ``on_lost`` is not called, and no further message is handled.
        """
        self._is_lost = True
        if self._turn is not None:
            self._turn.cancel()
        if self._transport is not None:
            self._transport.close()

    # --- receiving --------------------------------------------------------------------------------

    def hold(self) -> None:
        """Stop handling messages and reading the socket until :meth:`release` is called.

        The owner calls this method when it has no room for messages.
        """
        self._is_held = True
        self._pause()

    def release(self) -> None:
        """End the pause of :meth:`hold`. Messages are handled from the next turn of the loop on."""
        if self._is_held:
            self._is_held = False
            self._next_turn()

    def _next_turn(self) -> None:
        if self._turn is None and not self._is_lost:
            self._turn = self._loop.call_soon(self._handle_turn)

    def _handle_turn(self) -> None:
        self._turn = None
        end = time.perf_counter() + TURN_SECONDS
        messages = self._frames.messages()
        try:
            while self._may_handle() and time.perf_counter() < end:
                message = next(messages, None)
                if message is None:
                    self._resume()
                    return
                self._handle(message)
        except RemoteProtocolError:
            # This is a bug of srmp-spark. The bytes after the bad frame mean nothing.
            log.exception("gateway.bad_frame")
            self._abort()
            return
        finally:
            messages.close()
        if self._may_handle():
            self._pause()
            self._next_turn()

    def _may_handle(self) -> bool:
        return not (self._is_held or self._is_lost)

    def _handle(self, message: _In) -> None:
        try:
            self._on_message(message)
        except Exception:
            # A bug in one message must not end the channel and every connection with it.
            log.exception("gateway.message_failed type=%s", type(message).__name__)

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and set the limit of its write buffer. asyncio calls this method."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES)
        if self._is_held:
            self._pause()

    def data_received(self, data: bytes) -> None:
        """Keep the received bytes, and handle their whole messages.

        Messages are handled for at most TURN_SECONDS; the rest is handled in the next turn of the
        loop. asyncio calls this method.
        """
        self._frames.feed(data)
        if self._turn is None and self._may_handle():
            self._handle_turn()

    def connection_lost(self, exc: Exception | None) -> None:  # The signature is asyncio's.
        """Call ``on_lost``, unless the owner closed the channel. asyncio calls this method."""
        if not self._is_lost:
            self._is_lost = True
            self._on_lost()

    def pause_writing(self) -> None:
        """Set ``is_congested``, because more than CONGESTED_BYTES wait to be sent.

        asyncio calls this method.
        """
        self.is_congested = True

    def resume_writing(self) -> None:
        """Clear ``is_congested``, because the other end has caught up, and call ``on_room``.

        asyncio calls this method.
        """
        self.is_congested = False
        self._on_room()
