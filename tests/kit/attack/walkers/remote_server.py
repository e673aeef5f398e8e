"""Walks of hostile remote queue managers, from which the target's subscriptions read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from srmp_spark.errors import ApiError, ApiUnreachableError
from tests.kit.attack.judge import PULL_MAX, Finding, FoundError
from tests.kit.attack.machine import Patience
from tests.kit.attack.remotes import BEHAVIOURS
from tests.kit.attack.scene import ADMIN_TOKEN, Scene
from tests.kit.attack.steps import Step
from tests.kit.remote.forms import READABLE_FORMS, UNREADABLE_FORMS

BEHAVIOURS_BY_MODE = {"move": BEHAVIOURS, "copy": (*BEHAVIOURS, "loops", "loops", "loops")}
"""The behaviours to draw from, by the subscription's mode.

Only a copy meets a cursor that loops. A walk takes ten seconds, so this behaviour is drawn more
often than the others.
"""
ASK_SECONDS = 0.5
"""Seconds between two checks of the rows."""


class RemoteServerWalker:
    """Plans walks of the remote queue managers."""

    port = "remote"
    at_once = 1
    is_awaited = True

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return steps with messages and hostile behaviours of one remote queue manager.

        The last step makes it honest. From then on every readable message must arrive.
        """
        which = rng.choice(("move", "copy"))
        steps: list[Step] = []
        for _ in range(rng.choice((1, 2, 4))):
            steps += [self._put(rng, which) for _ in range(rng.randrange(3))]
            what = rng.choice(BEHAVIOURS_BY_MODE[which])
            is_told = what == "loops" and which == "copy"
            # The target reports an unreadable head of the queue only after UNREADABLE_WALKED_MAX
            # reads, which take minutes on a busy machine. Therefore the queue is emptied first.
            if is_told:
                steps.append(Step("clear", {"at": which}))
            steps.append(
                Step("behave", {"at": which, "what": what, "seed": rng.randrange(1 << 30)})
            )
            if is_told:
                whole = Step("put", {"at": which, "count": 3, "form": "whole", "head": True})
                steps += [whole, Step("told", {"at": which, "what": "loops"})]
            elif what == "empty":
                steps.append(Step("told", {"at": which, "what": "empty"}))
            steps += [self._put(rng, which) for _ in range(rng.randrange(2))]
            steps.append(Step("wait", {"seconds": rng.choice((0.2, 1.0, 3.0))}))
        return [*steps, Step("settle", {"at": which})]

    @staticmethod
    def _put(rng: Random, which: str) -> Step:
        form = rng.choice((*READABLE_FORMS, *READABLE_FORMS, *UNREADABLE_FORMS))
        count = rng.choice((1, 10, 300) if form in READABLE_FORMS else (1, 40, 1_100))
        return Step(
            "put",
            {
                "at": which,
                "count": count,
                "form": form,
                "head": form in UNREADABLE_FORMS or rng.random() < 0.3,
            },
        )

    def player(self, scene: Scene) -> RemoteServerPlayer:
        """Return a player for one walk."""
        return RemoteServerPlayer(scene)


class RemoteServerPlayer:
    """Plays walks of the remote queue managers."""

    port = "remote"

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def close(self) -> None:
        """Do nothing: both remote queue managers stay, because the next walk uses them."""

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "wait":
            await asyncio.sleep(given["seconds"])
            return
        remote = self.scene.remotes[given["at"]]
        if step.kind == "put":
            self.scene.requests[self.port] += given["count"]
            await asyncio.to_thread(
                remote.put, given["count"], given["form"], at_the_head=given["head"]
            )
        elif step.kind == "behave":
            await asyncio.to_thread(remote.behave, given["what"], given["seed"])
        elif step.kind == "clear":
            await asyncio.to_thread(remote.settled)
        elif step.kind == "told":
            await self._see_told(given["at"], given.get("what", "loops"))
        else:
            await self._settle(given["at"])

    async def _see_told(self, which: str, what: str) -> None:
        """Wait until the target's status names the behaviour ``what`` of the remote queue.

        ``which`` is the mode of the remote queue. Raises :class:`FoundError` if the status does not
        name the behaviour within :data:`PULL_MAX`.
        """
        host, port = self.scene.ports["api"]
        patience = Patience(PULL_MAX)
        while not await asyncio.to_thread(
            self.scene.remotes[which].has_told, f"http://{host}:{port}", ADMIN_TOKEN, what
        ):
            if patience.is_over:
                raise FoundError(
                    Finding(
                        "untold",
                        f"{which} does {what!r}, and nothing is said of it in {PULL_MAX} s",
                    )
                )
            await asyncio.sleep(ASK_SECONDS)

    async def _settle(self, which: str) -> None:
        remote = self.scene.remotes[which]
        host, port = self.scene.ports["api"]
        await asyncio.to_thread(remote.be_honest)
        await asyncio.to_thread(remote.put, 1, "whole", at_the_head=False)
        patience = Patience(PULL_MAX)
        while True:
            try:
                found = await asyncio.to_thread(
                    remote.problem, f"http://{host}:{port}", ADMIN_TOKEN, self.scene.epoch
                )
            except (ApiError, ApiUnreachableError) as error:
                kind = (
                    "damaged" if isinstance(error, ApiError) and error.code == "damaged" else "api"
                )
                found = Finding(kind, f"the rows of {remote.local}: {error}")
            if found is None or found.kind in ("doubled", "damaged") or patience.is_over:
                break
            await asyncio.sleep(ASK_SECONDS)
        if found is not None:
            raise FoundError(found)
        await asyncio.to_thread(remote.settled)
