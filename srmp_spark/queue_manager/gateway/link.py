"""Start a gateway, give it the listening sockets, watch it, and start it again if it dies.

This is the main process's side of a gateway.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.child.link import ChildLink
from srmp_spark.queue_manager.gateway.channel import Channel
from srmp_spark.queue_manager.gateway.control import (
    GATEWAY_COMMANDS,
    GATEWAY_EVENTS,
    GatewayEvent,
    GatewayListens,
    GatewaySettings,
    Ping,
)

RESTART_SECONDS = (0.2, 1.0, 2.0, 5.0)
"""Pauses before a gateway that died is started again, in seconds.

The last pause repeats. A gateway holds nothing that a quick restart could damage, and its clients
are waiting.
"""
WATCH_SECONDS = 2.0
"""Seconds between two pings, which ask a gateway whether its loop still runs."""
SILENCE_SECONDS = 20.0
"""Seconds without an answer to a ping after which a gateway counts as hanging.

It is killed and started again.
"""
LAST_WORDS_SECONDS = 1.0
"""Seconds that a gateway whose channel is lost gets to log the reason. After that it is killed."""
LOOK_SECONDS = 0.05
"""Seconds between two checks of :meth:`GatewayLink.started` whether the gateway ended instead of
listening.
"""
START_SECONDS = 30.0
"""Longest wait for a new gateway to listen, in seconds.

After that the start fails. It takes a second on a quiet machine.
"""

_In = TypeVar("_In")
_Out = TypeVar("_Out", bound=msgspec.Struct)

log = logging.getLogger(__name__)


class GatewayLink(ChildLink[Ping, GatewayEvent], Generic[_Out, _In]):
    """Keeps one gateway running. A subclass or its caller defines the gateway and its messages.

    ``on_up`` is called when messages can be sent to a new gateway, before its first message
    arrives. ``on_lost`` is called when the gateway is gone: every connection of the gateway is
    over, and messages that were sent to it may not have arrived.
    """

    commands = GATEWAY_COMMANDS
    events = GATEWAY_EVENTS
    restart_seconds = RESTART_SECONDS

    def __init__(
        self,
        settings: GatewaySettings,
        listening: Mapping[str, socket.socket],
        types: Any,  # noqa: ANN401  # a union of Struct types is no type to mypy
        on_message: Callable[[_In], object],
        *,
        on_up: Callable[[], object] = lambda: None,
        on_lost: Callable[[], object] = lambda: None,
        on_room: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare the link without starting the gateway.

        ``settings`` are handed to the gateway (:func:`.process.run_gateway`). ``listening`` are
        bound, listening sockets by name, which the caller must close. ``types`` is the union of the
        messages that the gateway sends. ``on_message`` is called for each of them. ``on_room`` is
        called when more messages can be sent again after congestion.
        """
        super().__init__(settings, self._on_event_of_child)
        self._listening = dict(listening)
        self._types = types
        self._on_message = on_message
        self._on_up = on_up
        self._on_lost = on_lost
        self._on_room = on_room
        self._theirs: socket.socket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._watch = Alarm(self._loop, self._look)
        self._heard_at = 0.0
        """Time of the gateway's last event or answer to a ping, in seconds of the monotonic clock.
        """
        self._listens = asyncio.Event()
        self.channel: Channel[_Out, _In] | None = None
        """The channel to the present gateway. ``None`` while there is no gateway."""

    async def started(self) -> None:
        """Wait until the first gateway accepts connections.

        Raises :class:`ConfigurationError` if the gateway ended instead, or does not listen after
        START_SECONDS.
        """
        end = time.monotonic() + START_SECONDS
        while not self._listens.is_set():
            ended = self.restarts > 0 or (
                self._process is not None and self._process.poll() is not None
            )
            if ended or time.monotonic() > end:
                raise ConfigurationError(
                    f"the {self.noun} port could not be opened; the log above says why"
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def stop(self) -> None:
        """End the gateway and wait until it has ended. ``on_lost`` is not called."""
        self._watch.stop()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        await super().stop()

    def send(self, message: _Out) -> bool:
        """Send ``message`` to the gateway, and return whether the channel to a gateway is open.

        True does not mean that the message arrives. A message for a gateway that is gone can be
        dropped, because ``on_lost`` ends the connection to which the message belongs. Raises
        :class:`LimitExceededError` for a message above :data:`.frames.FRAME_MAX`.
        """
        return self.channel is not None and self.channel.send(message)

    # --- the child --------------------------------------------------------------------------------

    def _inherited(self) -> Mapping[str, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        self._theirs = theirs
        self._connecting = self._loop.create_task(self._connect(ours))
        return {"channel": theirs, **self._listening}

    def _spawned(self) -> None:
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None
        self._heard_at = time.monotonic()
        self._watch.at(self._loop.time() + WATCH_SECONDS)

    def _try_to_spawn(self) -> None:
        self._listens.clear()
        super()._try_to_spawn()
        if self._theirs is not None:  # The start failed, so no process has the other end.
            self._theirs.close()
            self._theirs = None

    async def _connect(self, ours: socket.socket) -> None:
        made: Channel[_Out, _In] = Channel(
            self._types, self._on_message, lambda: self._on_channel_lost(made), self._on_room
        )
        await self._loop.create_unix_connection(lambda: made, sock=ours)
        before, self.channel = self.channel, made
        # The messages of the old channel wait for their turns, and its end waits after them. The
        # old gateway has no connections any longer.
        if before is not None:
            before.close()
            self._on_lost()
        try:
            self._on_up()
        except Exception:  # The gateway is up nevertheless.
            log.exception("%s.on_up_failed", self.noun)

    def _on_channel_lost(self, channel: Channel[_Out, _In]) -> None:
        if self.channel is channel:
            self.channel = None
            self._on_lost()
        process = self._process
        if process is not None:
            self._loop.call_later(LAST_WORDS_SECONDS, self._kill, process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill ``process`` if it is the present gateway and still runs.

        Called when its channel is lost, because such a gateway is of no use. Another one is started
        then.
        """
        if process is self._process and process.poll() is None:
            process.kill()

    # --- whether its loop turns -------------------------------------------------------------------

    def _on_event_of_child(self, event: GatewayEvent) -> None:
        self._heard_at = time.monotonic()
        if isinstance(event, GatewayListens):
            self._listens.set()

    def _look(self) -> None:
        process = self._process
        if process is None or self._stopping:
            return
        silent = time.monotonic() - self._heard_at
        if silent > SILENCE_SECONDS:
            log.error("%s.silent pid=%d seconds=%.0f: killed", self.noun, process.pid, silent)
            process.kill()
            return
        self.tell(Ping())
        self._watch.within(WATCH_SECONDS)
