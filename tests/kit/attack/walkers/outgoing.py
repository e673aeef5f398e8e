"""The common part of players that send messages out of the target.

The module has calls with all rights, good messages, and the check that the messages arrived.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.kit.attack.destinations import Destinations
from tests.kit.attack.judge import SENT_MAX, Finding, FoundError
from tests.kit.attack.machine import Patience
from tests.kit.attack.scene import ADMIN_TOKEN, Scene
from tests.kit.attack.walkers.playing import http_request
from tests.kit.attack.wire import Answer, ClosedError, Connection, SilentError

WHO = "127.0.0.5"
"""Source address of the calls.

No attacker uses the address, so the limit for connections of one client does not affect the calls.
"""
ASK_SECONDS = 0.5
"""Seconds between two checks of the arrived messages."""
AGAIN_SECONDS = 0.3
"""Seconds before a call is repeated that was not answered, or was answered 503."""
CALL_SECONDS = 60.0
"""Seconds for which a call is repeated.

The call competes with the attack of the API port for connections.
"""


class OutgoingPlayer:
    """A player that calls the API with all rights; the base of those that send messages."""

    port = ""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._connection: Connection | None = None

    @property
    def destinations(self) -> Destinations:
        """Return the destinations of the target. Raises :class:`AssertionError` if it has none."""
        found = self.scene.destinations
        assert found is not None, "the target has destinations"
        return found

    async def close(self) -> None:
        """Close the connection to the API."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def call(
        self, method: str, target: str, content: bytes, mime: str = "application/json"
    ) -> Answer:
        """Call the API and return the answer, of any status but 503.

        The call is repeated while it gets no answer or a 503, for :data:`CALL_SECONDS`. Raises
        :class:`FoundError` after that, or if an open connection stays silent.
        """
        headers = {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {ADMIN_TOKEN}",
            "Content-Type": mime,
        }
        raw = http_request(method, target, content, headers)
        patience, problem = Patience(CALL_SECONDS), ""
        while not patience.is_over:
            self.scene.requests[self.port] += 1
            try:
                if self._connection is None:
                    self._connection = await Connection.open(self.scene.ports["api"], WHO)
                await self._connection.send([raw])
                answer = await self._connection.answer()
                if answer.headers.get("connection", "").lower() == "close":
                    await self.close()
                if answer.status != 503:
                    return answer
                problem = f"503 {answer.content[:200]!r}"
            except ClosedError as error:
                problem = str(error)
                await self.close()
            except SilentError as error:
                await self.close()
                raise FoundError(Finding("silent", f"api: {error} to {method} {target}")) from None
            await asyncio.sleep(AGAIN_SECONDS)
        raise FoundError(
            Finding(
                "api", f"{method} {target} of {self.port} fails for {CALL_SECONDS} s: {problem}"
            )
        )

    async def post(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Send messages in one call of the API.

        Raises :class:`FoundError` if they are not accepted.
        """
        answer = await self.call("POST", "/v1/outgoing/messages", json.dumps(messages).encode())
        if answer.status != 200:
            raise FoundError(
                Finding(
                    "answer",
                    f"api answered {answer.status} to a good message: {answer.content[:300]!r}",
                )
            )

    async def post_good(self, queue: str, count: int, delivery: str) -> None:
        """Send ``count`` messages to ``queue`` of the good destination.

        ``delivery`` is ``transactional``, ``recoverable`` or ``express``. Each message has a key,
        so that the call may be repeated. Raises :class:`FoundError` as :meth:`post` does.
        """
        numbers = self.destinations.ask(queue, count)
        await self.post(
            [
                {
                    "destination": self.destinations.good_url(queue),
                    "body_base64": base64.b64encode(b"%d" % number).decode(),
                    "delivery": delivery,
                    "key": f"{queue} {number}",
                }
                for number in numbers
            ]
        )
        self.destinations.taken(queue, numbers)

    async def see_arrived(self) -> None:
        """Wait until every message that the target accepted has arrived at the good destination.

        Raises :class:`FoundError` if a message is missing after :data:`SENT_MAX`, or is doubled,
        disordered or unexpected.
        """
        patience = Patience(SENT_MAX)
        while (found := await asyncio.to_thread(self.destinations.problem)) is not None:
            if found.kind != "stuck" or patience.is_over:
                raise FoundError(found)
            await asyncio.sleep(ASK_SECONDS)
