"""An event loop in which no time passes: when nothing is ready its clock moves to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

START_S = 1_000.0
"""The clock's first reading: nobody may count on zero."""
START_UTC_US = 1_800_000_000_000_000

_T = TypeVar("_T")
Connect = Callable[
    [Callable[[], asyncio.Protocol], str, int],
    Awaitable[tuple[asyncio.Transport, asyncio.Protocol]],
]
"""Makes a simulated connection: the protocol's factory, an address, a port."""


class _NoSelector(selectors.SelectSelector):
    """Waits for no file: it moves the clock instead."""

    now = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError(
                "nothing will ever happen: something waits for an event that nobody brings"
            )
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. It is the :class:`~srmp_spark.clock.Clock` of what runs in it, too."""

    def __init__(self, connect: Connect) -> None:
        self._virtual = _NoSelector()
        self._make_connection = connect
        super().__init__(self._virtual)
        self.bugs: list[str] = []
        """Exceptions that nobody caught."""
        self.set_exception_handler(self._note_bug)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._virtual.now

    monotonic = time

    def utc(self) -> int:
        """Microseconds since 1970, UTC."""
        return START_UTC_US + int((self._virtual.now - START_S) * 1_000_000)

    async def create_connection(
        self,
        protocol_factory: Any,  # noqa: ANN401  # asyncio's
        host: Any = None,  # noqa: ANN401  # asyncio's
        port: Any = None,  # noqa: ANN401  # asyncio's
        **_: Any,  # noqa: ANN401  # asyncio's
    ) -> Any:  # noqa: ANN401  # asyncio's
        """Connect to a simulated peer; TLS is not simulated."""
        return await self._make_connection(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,
        func: Callable[..., _T],
        *args: Any,  # noqa: ANN401  # asyncio's
    ) -> asyncio.Future[_T]:
        """Call ``func`` now: threads have no part in virtual time."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # as a thread would hand it over
            future.set_exception(error)
        return future

    def _note_bug(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.bugs.append(f"{context.get('message')}: {context.get('exception')!r}")


def run_virtual(
    connect: Connect, main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]
) -> tuple[_T, list[str]]:
    """Run ``main`` in a loop of its own; return its result, and what nobody caught."""
    loop = VirtualLoop(connect)
    asyncio.set_event_loop(loop)
    try:
        found = loop.run_until_complete(main(loop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        return found, loop.bugs
    finally:
        asyncio.set_event_loop(None)
        loop.close()
