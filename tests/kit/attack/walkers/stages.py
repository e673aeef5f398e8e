"""Walks at the stages of the API, with Arrow bytes that are good, changed or hostile.

Each answer is judged from outside. Hostile stages must be refused. Good stages must be accepted,
and their rows must arrive. The sender process must not end; its end would be in the log.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from random import Random
from typing import Any

from srmp_spark.interface import ARROW_STREAM
from tests.kit.attack.arrow_stages import ANYHOW, FORMS, HOSTILE, stream_of
from tests.kit.attack.destinations import PLAIN, STAGED
from tests.kit.attack.judge import Finding, FoundError
from tests.kit.attack.scene import Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.outgoing import OutgoingPlayer

REFUSALS = frozenset({400, 404, 409, 413, 422})
"""Statuses of a stage or a commit that is refused permanently."""
AT_ONCE_MAX = 6
"""Most stages of one step that are sent at the same time."""


class StageWalker:
    """Plans walks at the stages."""

    port = "stages"
    at_once = 1
    is_awaited = True

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return steps that send stages and good messages; each stage belongs to a new batch.

        The last steps check which messages arrived.
        """
        steps: list[Step] = []
        for _ in range(rng.choice((2, 4, 8))):
            kind = rng.choices(("stage", "honest", "good", "commit", "delete"), (12, 3, 2, 1, 1))[0]
            if kind == "stage":
                steps.append(self._stage(rng))
            elif kind == "good":
                steps.append(Step("good", {"count": rng.choice((1, 5))}))
            else:
                steps.append(
                    Step(
                        kind,
                        {
                            "rows": rng.choice((1, 50)),
                            "compression": rng.choice(("", "zstd", "lz4")),
                        },
                    )
                )
        last = Step("honest", {"rows": 2, "compression": ""})
        return [*steps, last, Step("good", {"count": 1}), Step("arrived")]

    @staticmethod
    def _stage(rng: Random) -> Step:
        given: dict[str, Any] = {
            "form": rng.choice((*HOSTILE, *ANYHOW, *ANYHOW)),
            "seed": rng.randrange(1 << 30),
            "times": rng.choice((1, 1, 2)),
            "at_once": rng.choice((1, 1, 1, AT_ONCE_MAX)),
            "partition": rng.choice((0, 7)),
            "commit": rng.random() < 0.7,
        }
        return Step("stage", given)

    def player(self, scene: Scene) -> StagePlayer:
        """Return a player for one walk."""
        return StagePlayer(scene)


class StagePlayer(OutgoingPlayer):
    """Plays walks at the stages."""

    port = "stages"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._batch = f"b{secrets.token_hex(6)}"
        self._number = 0

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "stage":
            await self._stage_hostile(given)
        elif step.kind == "honest":
            await self._stage_honest(given)
        elif step.kind == "good":
            await self.post_good(PLAIN, given["count"], "recoverable")
        elif step.kind == "commit":
            self._number += 1
            await self._commit(["0" * 32, "nothing", "../../x", ""])
        elif step.kind == "delete":
            await self.call("DELETE", f"/v1/outbox/attack/{self._batch}-{self._number}", b"")
        else:
            await self.see_arrived()

    async def _stage_hostile(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        form = given["form"]
        content = await asyncio.to_thread(FORMS[form], Random(given["seed"]))
        for _ in range(given["times"]):
            self._number += 1
            players = [StagePlayer(self.scene) for _ in range(given["at_once"])]
            try:
                jobs = (each.stage(content, given["partition"], form) for each in players)
                names = [name for name in await asyncio.gather(*jobs) if name]
            finally:
                for each in players:
                    await each.close()
            if form in HOSTILE and names:
                raise FoundError(Finding("answer", f"api took a stage of the form {form}"))
            if given["commit"] and names:
                await self._commit(names[:1])

    async def _stage_honest(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        self._number += 1
        numbers = self.destinations.ask(STAGED, given["rows"])
        bodies = [b"%d" % number for number in numbers]
        content = stream_of(
            bodies, self.destinations.good_url(STAGED), given["compression"] or None
        )
        name = await self.stage(content, 0, "honest")
        if not name:
            raise FoundError(Finding("answer", "api refused a good stage"))
        if await self._commit([name]) != len(numbers):
            raise FoundError(Finding("answer", "api did not commit all rows of a good stage"))
        self.destinations.taken(STAGED, numbers)

    async def stage(self, content: bytes, partition: int, form: str) -> str:
        """Upload a stage and return its name, or an empty text if the stage is refused.

        ``form`` describes the stage in a finding. Raises :class:`FoundError` for an answer that is
        neither an acceptance nor one of :data:`REFUSALS`.
        """
        target = (
            f"/v1/outbox/attack/{self._batch}-{self._number}/stage?partition={partition}&attempt=0"
        )
        answer = await self.call("POST", target, content, ARROW_STREAM)
        if answer.status == 200:
            return str(json.loads(answer.content)["stage"])
        self._check_refusal(answer.status, answer.content, f"a stage of the form {form}")
        return ""

    async def _commit(self, names: list[str]) -> int:
        """Commit the stages of the current batch and return the number of committed rows.

        The result is 0 if the commit is refused. Raises :class:`FoundError` for any other answer.
        """
        target = f"/v1/outbox/attack/{self._batch}-{self._number}/commit"
        answer = await self.call("POST", target, json.dumps({"stages": names}).encode())
        if answer.status == 200:
            found = json.loads(answer.content)
            return int(found["new"]) + int(found["known"])
        self._check_refusal(answer.status, answer.content, "a commit")
        return 0

    def _check_refusal(self, status: int, content: bytes, sent: str) -> None:
        if status not in REFUSALS or not json.loads(content).get("error", {}).get("message"):
            raise FoundError(
                Finding("answer", f"api answered {status} to {sent}: {content[:300]!r}")
            )
