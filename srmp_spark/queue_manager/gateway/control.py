"""Define the settings of a gateway, and the pings that do not pass through its channel.

Pings pass through the command socket, which every child has.
"""

from __future__ import annotations

from dataclasses import dataclass

from srmp_spark.queue_manager.child.encoding import Encoding

MEMORY_MAX = 1024 * 1024 * 1024
"""Most bytes of data that a gateway may request from the kernel, unless its settings differ.

The gateway's own budgets are far smaller. If a budget has a bug, the gateway dies with a
MemoryError and is started again, and the machine keeps its memory.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The settings that every gateway has. A transport with settings of its own adds them."""

    memory_max: int = MEMORY_MAX


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the gateway's loop runs. The gateway answers :class:`LoopTurns`."""


@dataclass(frozen=True, slots=True)
class LoopTurns:
    """Answers :class:`Ping`."""


@dataclass(frozen=True, slots=True)
class GatewayListens:
    """Reports that the gateway of the process ``pid`` listens."""

    pid: int


GatewayEvent = GatewayListens | LoopTurns

GATEWAY_COMMANDS: Encoding[Ping] = Encoding({"ping": Ping})
GATEWAY_EVENTS: Encoding[GatewayEvent] = Encoding({"listens": GatewayListens, "turns": LoopTurns})
