"""Run a gateway: receive settings, sockets and channel, and end with the main process.

    python -m MODULE FD < SETTINGS

A gateway is started like every child (:mod:`srmp_spark.queue_manager.child.process`). The module of
a gateway ends with::

    if __name__ == "__main__":
        run_gateway(ToGateway, GatewaySettings, serve)
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import uvloop

from srmp_spark.queue_manager.child.packets import PACKET_MAX, Start
from srmp_spark.queue_manager.child.process import run_child
from srmp_spark.queue_manager.gateway.channel import Channel
from srmp_spark.queue_manager.gateway.control import (
    GATEWAY_EVENTS,
    GatewayListens,
    GatewaySettings,
    LoopTurns,
)

OOM_SCORE = 600
"""The value that a gateway writes to its ``/proc/self/oom_score_adj``.

With it the kernel's out-of-memory killer ends the gateway before the main process.
"""

_Settings = TypeVar("_Settings", bound=GatewaySettings)

log = logging.getLogger(__name__)


class Served(NamedTuple):
    """The callbacks by which a transport handles the messages of its channel."""

    on_message: Callable[[Any], object]
    on_room: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Gateway(Generic[_Settings]):
    """The objects that a transport's ``serve`` function gets when it starts."""

    settings: _Settings
    """The settings from the main process."""
    listening: Mapping[str, socket.socket]
    """Bound, listening sockets by name.

    Close none of them, because the main process has the same sockets.
    """
    channel: Channel[Any, Any]
    """The channel to the main process.

    Messages may be sent from the start. The first message arrives after ``serve`` has returned.
    """


def run_gateway(
    types: Any,  # noqa: ANN401  # a union of Struct types is no type to mypy
    kind: type[_Settings],
    serve: Callable[[Gateway[_Settings]], Awaitable[Served]],
) -> NoReturn:
    """Run a gateway until the main process ends it or has ended, then exit with code 0.

    ``types`` is the union of the messages that the main process sends. ``kind`` is the type of the
    settings. ``serve`` is a coroutine function: it gets a :class:`Gateway`, starts to listen, and
    returns a :class:`Served`.
    """

    def run(control: socket.socket, start: Start[_Settings]) -> None:
        _be_first_to_go(start.settings.memory_max)
        uvloop.run(_run(control, start, types, serve))

    run_child(kind, run)


def _be_first_to_go(memory_max: int) -> None:
    with contextlib.suppress(OSError):  # A container may forbid this. MEMORY_MAX still applies.
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = memory_max if soft == resource.RLIM_INFINITY else min(soft, memory_max)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


async def _run(
    control: socket.socket,
    start: Start[_Settings],
    types: Any,  # noqa: ANN401  # a union of Struct types is no type to mypy
    serve: Callable[[Gateway[_Settings]], Awaitable[Served]],
) -> None:
    loop = asyncio.get_running_loop()
    sockets = {name: socket.socket(fileno=fd) for name, fd in start.descriptors.items()}
    for each in sockets.values():
        each.setblocking(False)
    over = asyncio.Event()
    served: list[Served] = []
    loop.set_exception_handler(_on_exception)

    def on_message(message: Any) -> None:  # noqa: ANN401  # one of ``types``
        try:
            served[0].on_message(message)
        except MemoryError:
            _end_for_memory()

    channel: Channel[Any, Any] = Channel(types, on_message, over.set, lambda: served[0].on_room())
    channel.hold()
    await loop.create_unix_connection(lambda: channel, sock=sockets.pop("channel"))
    served.append(await serve(Gateway(start.settings, sockets, channel)))
    channel.release()
    gc.collect()
    gc.freeze()
    control.setblocking(False)
    loop.add_reader(control.fileno(), _answer, control, over)
    # The main process may have ended meanwhile. The next read notices that.
    with contextlib.suppress(OSError):
        control.send(GATEWAY_EVENTS.encode(GatewayListens(os.getpid())))
    await over.wait()
    logging.shutdown()
    os._exit(0)  # Connections end with the process. No state here needs an orderly end.


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of a connection's callback, as asyncio's default handler does.

    The gateway continues. Only a :class:`MemoryError` ends the process.
    """
    if isinstance(context.get("exception"), MemoryError):
        _end_for_memory()
    loop.default_exception_handler(context)


def _end_for_memory() -> NoReturn:
    """End this process at once with code 1, because it has reached its limit of memory.

    Its memory becomes free, and the main process starts another gateway.
    """
    os.write(2, b"a gateway used up MEMORY_MAX and ends\n")
    os._exit(1)


def _answer(control: socket.socket, over: asyncio.Event) -> None:
    """Receive a ping of the main process from ``control`` and answer it, or set ``over``.

    The answer proves that this loop runs. ``over`` is set when the main process has closed
    ``control``, and the gateway then ends.
    """
    try:
        packet = control.recv(PACKET_MAX)
    except BlockingIOError:
        return
    except OSError:
        packet = b""
    if not packet:
        over.set()
        return
    with contextlib.suppress(OSError):  # The main process reads too slowly, or is gone.
        control.send(GATEWAY_EVENTS.encode(LoopTurns()))
