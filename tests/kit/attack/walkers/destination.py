"""Walks of a hostile destination, while the target's sender also sends to a good one.

The hostile destination answers as no queue manager does.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from random import Random
from typing import Any
from urllib.parse import quote

from tests.kit.attack.destinations import BAD_MAX, KINDS, PLAIN, STREAM
from tests.kit.attack.hostile_http import BEHAVIOURS
from tests.kit.attack.scene import Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.outgoing import OutgoingPlayer

HOLDING = ("silent", "slow", "unread")
"""Behaviours that hold a connection for as long as the sender allows.

The walker draws them more often than others, for many queues at the same time.
"""
SIZES = (0, 10, 10, 1_000, 60_000, 1_000_000)
MESSAGES_MAX = 24_000_000
"""Most bytes of all messages of one step together."""
GOOD_MAX = 20
"""Most good messages of one step, because each message has its own commit."""


class DestinationWalker:
    """Plans walks of the hostile destination."""

    port = "out"
    at_once = 1
    is_awaited = True

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return the steps of a walk.

        The steps change the behaviour of the hostile server, send messages to both destinations,
        and check that the good messages arrived.
        """
        steps: list[Step] = []
        for _ in range(rng.choice((1, 1, 2))):
            what = rng.choice((*BEHAVIOURS, *HOLDING, *HOLDING))
            steps.append(Step("behave", {"what": what, "seed": rng.randrange(1 << 30)}))
            if what in HOLDING:
                road = rng.choice(("stream", "plain", "express"))
                steps.append(Step("bad", {"road": road, "queues": BAD_MAX, "count": 1, "size": 10}))
            for _ in range(rng.choice((1, 2))):
                steps += [self._bad(rng), self._good(rng)]
            steps.append(Step("wait", {"seconds": rng.choice((0.2, 1.0, 4.0))}))
            steps += [self._good(rng), Step("arrived")]
        return [*steps, Step("end")]

    @staticmethod
    def _good(rng: Random) -> Step:
        queue = rng.choice((STREAM, STREAM, PLAIN))
        return Step("good", {"queue": queue, "count": rng.choice((1, 5, GOOD_MAX))})

    @staticmethod
    def _bad(rng: Random) -> Step:
        size = rng.choice(SIZES)
        queues, count = rng.choice((1, 10, 100, BAD_MAX)), rng.choice((1, 1, 5, 30))
        queues = max(1, min(queues, MESSAGES_MAX // max(1, size * count)))
        kind = rng.choices(KINDS, (4, 2, 1, 2))[0]
        given: dict[str, Any] = {"road": kind, "queues": queues, "count": count, "size": size}
        if rng.random() < 0.3 and kind in ("plain", "express"):
            given["journal"] = True
        return Step("bad", given)

    def player(self, scene: Scene) -> DestinationPlayer:
        """Return a player for one walk."""
        return DestinationPlayer(scene)


class DestinationPlayer(OutgoingPlayer):
    """Plays walks of the hostile destination."""

    port = "out"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._used: set[str] = set()

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "wait":
            await asyncio.sleep(given["seconds"])
        elif step.kind == "behave":
            await asyncio.to_thread(self.destinations.bad.behave, given["what"], given["seed"])
        elif step.kind == "good":
            await self.post_good(
                given["queue"],
                given["count"],
                "transactional" if given["queue"] == STREAM else "recoverable",
            )
        elif step.kind == "bad":
            await self._send_bad(given)
        elif step.kind == "arrived":
            await self.see_arrived()
        else:
            await self._end()

    async def _send_bad(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        kind = given["road"]
        urls = [self.destinations.bad_url(number, kind) for number in range(given["queues"])]
        self._used.update(urls)
        body = b"x" * given["size"]
        more: dict[str, Any] = {"journal": True} if given.get("journal") else {}
        if kind == "wsrm":
            body, more = b"<n>" + body + b"</n>", {"soap_action": "urn:a"}
        else:
            more["delivery"] = {
                "stream": "transactional",
                "plain": "recoverable",
                "express": "express",
            }[kind]
        text = base64.b64encode(body).decode()
        messages = [
            {"destination": url, "body_base64": text, **more}
            for url in urls
            for _ in range(given["count"])
        ]
        step = max(1, min(1_000, MESSAGES_MAX // (2 * len(text) + 1)))
        for begin in range(0, len(messages), step):
            await self.post(messages[begin : begin + step])

    async def _end(self) -> None:
        """Discard the messages that wait for the hostile destination, as an operator does."""
        await asyncio.to_thread(self.destinations.bad.behave, "", 0)
        for url in sorted(self._used):
            await self.call("POST", f"/v1/outgoing/{quote(url, safe='')}/drop", b"")
        self._used.clear()
