"""Gateway process of multicast: groups, sessions and the decoding of messages.

All work that a datagram can cause is done in this process. The main process receives whole messages
(:mod:`.crossing`), and reports how many octets no longer wait for their commit.
"""

from __future__ import annotations

import asyncio

from srmp_spark.names import MulticastAddress
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway
from srmp_spark.queue_manager.multicast.crossing import (
    Begin,
    GroupsLeft,
    Leave,
    MulticastSettings,
    Settled,
    ToGateway,
)
from srmp_spark.queue_manager.multicast.listener import GroupListener

FIGURES_SECONDS = 0.5
"""Interval at which changed figures are sent, in seconds.

``status`` and metrics are at most this old.
"""


class MulticastFront:
    """Runs the listeners (:class:`.GroupListener`) of all groups of a queue manager."""

    def __init__(self, gateway: Gateway[MulticastSettings]) -> None:
        self._channel = gateway.channel
        self._loop = asyncio.get_running_loop()
        self._figures = Alarm(self._loop, self._tell_figures)
        settings = gateway.settings
        self._listeners = [
            GroupListener(
                number, queue, MulticastAddress.parse(address), settings.pgm, self._channel
            )
            for number, (queue, address) in enumerate(settings.groups)
        ]

    def join(self) -> None:
        """Join all groups. Report for each group whether the gateway can receive its packets."""
        for each in self._listeners:
            each.join()

    def on_message(self, message: Begin | Settled | Leave) -> None:
        """Handle one message (:mod:`.crossing`) of the main process."""
        if isinstance(message, Settled):
            self._listeners[message.group].settled(message.octets)
        elif isinstance(message, Begin):
            for each, places in zip(self._listeners, message.places, strict=True):
                each.begin(places)
            self._figures.within(FIGURES_SECONDS)
        else:
            self._leave()

    def on_room(self) -> None:
        """Continue to read from all groups.

        Called when the channel to the main process has room again.
        """
        for each in self._listeners:
            each.on_room()

    def _tell_figures(self) -> None:
        self._figures.within(FIGURES_SECONDS)
        if not self._channel.is_congested:
            self._send_figures()

    def _send_figures(self) -> None:
        for each in self._listeners:
            for figures in each.figures():
                self._channel.send(figures)

    def _leave(self) -> None:
        self._figures.stop()
        for each in self._listeners:
            each.stop()
        self._send_figures()
        self._channel.send(GroupsLeft())


async def serve(gateway: Gateway[MulticastSettings]) -> Served:
    """Join the groups and return the callbacks for messages of the main process.

    Packets are read only when the main process sends :class:`Begin`.
    """
    front = MulticastFront(gateway)
    front.join()
    return Served(front.on_message, front.on_room)


if __name__ == "__main__":
    run_gateway(ToGateway, MulticastSettings, serve)
