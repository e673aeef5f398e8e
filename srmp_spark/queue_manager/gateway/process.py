"""A gateway's side: its settings, its sockets, its channel, its end.

    python -m MODULE FD < SETTINGS

as every child (:mod:`srmp_spark.queue_manager.child.process`). The module of a gateway ends with::

    if __name__ == "__main__":
        run_gateway(ToGateway, serve)
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import uvloop

from srmp_spark.queue_manager.child.packets import PACKET_MAX
from srmp_spark.queue_manager.child.process import run_child
from srmp_spark.queue_manager.gateway.channel import Channel

MEMORY_MAX = 1024 * 1024 * 1024
"""Bytes of data that a gateway may ask of the kernel; its settings may say another number (``memory_max``). Its own budgets
end far below; if one of them has a hole, the gateway dies with a MemoryError and is started again, and the machine keeps its
memory."""
OOM_SCORE = 600
"""Added to the gateway's badness: the kernel's killer takes it before the main process."""

log = logging.getLogger(__name__)


class Served(NamedTuple):
    """What a transport does with its channel."""

    on_message: Callable[[Any], object]
    on_room: Callable[[], object] = lambda: None


class Gateway(NamedTuple):
    """What a transport is given when it starts."""

    settings: Mapping[str, Any]
    """As the main process gave them."""
    listening: Mapping[str, socket.socket]
    """Bound, listening sockets by name. Close none of them: the main process has the same."""
    channel: Channel[Any, Any]
    """Messages may be sent from the start; the first message arrives after ``serve`` has returned."""


def run_gateway(types: Any, serve: Callable[[Gateway], Any]) -> NoReturn:  # noqa: ANN401  # a union of Struct types is no type to mypy
    """Run a gateway until the main process ends it.

    ``types`` is the union of the messages that the main process sends. ``serve`` is a coroutine function: it
    gets a :class:`Gateway`, starts to listen, and returns a :class:`Served`.
    """

    def run(control: socket.socket, settings: dict[str, Any]) -> None:
        _be_first_to_go(settings.get("memory_max", MEMORY_MAX))
        uvloop.run(_run(control, settings, types, serve))

    run_child(run)


def _be_first_to_go(memory_max: int) -> None:
    with contextlib.suppress(OSError):  # a container may forbid it: MEMORY_MAX holds all the same
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = memory_max if soft == resource.RLIM_INFINITY else min(soft, memory_max)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


async def _run(
    control: socket.socket,
    settings: dict[str, Any],
    types: Any,  # noqa: ANN401  # a union of Struct types is no type to mypy
    serve: Callable[[Gateway], Any],
) -> None:
    loop = asyncio.get_running_loop()
    sockets = {name: socket.socket(fileno=fd) for name, fd in settings.pop("descriptors").items()}
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
    served.append(await serve(Gateway(settings, sockets, channel)))
    channel.release()
    gc.collect()
    gc.freeze()
    control.setblocking(False)
    loop.add_reader(control.fileno(), _answer, control, over)
    with contextlib.suppress(
        OSError
    ):  # the main process may have ended meanwhile; then reading says so
        control.send(json.dumps({"listens": True, "pid": os.getpid()}).encode())
    await over.wait()
    logging.shutdown()
    os._exit(0)  # connections end with the process, at once: nothing here is worth a tidy end


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what a connection's callback raised, and go on: only that connection ends."""
    if isinstance(context.get("exception"), MemoryError):
        _end_for_memory()
    loop.default_exception_handler(context)


def _end_for_memory() -> NoReturn:
    """End this process: what fills its memory ends with it, and the main process starts another one."""
    os.write(2, b"a gateway used up MEMORY_MAX and ends\n")
    os._exit(1)


def _answer(control: socket.socket, over: asyncio.Event) -> None:
    """Answer whether this loop turns, and notice the end of the main process."""
    try:
        packet = control.recv(PACKET_MAX)
    except BlockingIOError:
        return
    except OSError:
        packet = b""
    if not packet:
        over.set()
        return
    with contextlib.suppress(OSError):  # the main process reads too slowly, or is gone
        control.send(json.dumps({"turns": True}).encode())
