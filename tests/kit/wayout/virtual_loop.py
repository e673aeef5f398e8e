"""An event loop in virtual time: when nothing is ready, its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

START_S = 1_000.0
"""First reading of the clock in seconds. It is not 0, so that no code can rely on 0."""
START_UTC_US = 1_800_000_000_000_000

_T = TypeVar("_T")
Connect = Callable[
    [Callable[[], asyncio.Protocol], str, int],
    Awaitable[tuple[asyncio.Transport, asyncio.Protocol]],
]
"""Makes a simulated connection from a protocol factory, an address and a port."""


class _NoSelector(selectors.SelectSelector):
    """Waits for no file descriptor; it advances the clock instead."""

    now = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError(
                "nothing will ever happen: something waits for an event that nobody brings"
            )
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop with virtual time.

    The loop is also the :class:`~srmp_spark.clock.Clock` of the code that runs in it.
    """

    def __init__(self, connect: Connect) -> None:
        self._virtual = _NoSelector()
        self._make_connection = connect
        super().__init__(self._virtual)
        self.bugs: list[str] = []
        """Descriptions of exceptions that no code caught."""
        self.set_exception_handler(self._note_bug)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    monotonic = time

    def utc(self) -> int:
        """Return the virtual time in microseconds since 1970, UTC."""
        return START_UTC_US + int((self._virtual.now - START_S) * 1_000_000)

    async def create_connection(
        self,
        protocol_factory: Any,  # noqa: ANN401  # asyncio's
        host: Any = None,  # noqa: ANN401  # asyncio's
        port: Any = None,  # noqa: ANN401  # asyncio's
        **_: Any,  # noqa: ANN401  # asyncio's
    ) -> Any:  # noqa: ANN401  # asyncio's
        """Connect to a simulated peer with the constructor's function. TLS is not simulated."""
        return await self._make_connection(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,
        func: Callable[..., _T],
        *args: Any,  # noqa: ANN401  # asyncio's
    ) -> asyncio.Future[_T]:
        """Call ``func`` immediately and return a future that is done with its result or error.

        Threads do not run in virtual time.
        """
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        # A thread would pass every exception to the future, too.
        except Exception as error:
            future.set_exception(error)
        return future

    def _note_bug(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.bugs.append(f"{context.get('message')}: {context.get('exception')!r}")


def run_virtual(
    connect: Connect, main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]
) -> tuple[_T, list[str]]:
    """Run ``main`` in a new loop; return its result, and the exceptions that no code caught.

    ``connect`` makes the connections. Tasks that are left are cancelled. Raises
    :class:`RuntimeError` if ``main`` waits and no timer is left.
    """
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
