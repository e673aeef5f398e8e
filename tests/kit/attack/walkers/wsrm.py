"""Walks at the port of WS-ReliableMessaging.

The walks mix versions, name sequences of other clients, declare hundreds of prefixes, and leave
gaps.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.kit.attack.judge import OPTIONAL_MAX, Finding, FoundError
from tests.kit.attack.scene import SECRET, SHARED, Scene
from tests.kit.attack.soap import MIME, OPERATIONS, VERSIONS, envelope_of
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.playing import (
    ADDRESSES,
    MUTATOR,
    HttpPlayer,
    how,
    http_request,
    idle,
)

AT_ONCE = 4
"""Number of walks that are played at the same time.

One walk alone would mostly wait for its floods and idle times. The gateway has a separate process.
"""
QUEUES = (SHARED,) * 8 + ("private$/ordered", SECRET, "private$/nobody")
NAMES = ("s1", "s2", "s3")
"""Names of a walk for its sequences. A step may name a sequence that has not begun."""
FLOOD_MAX = 4_500
"""Requests of the largest flood: more than the number of sequences of a queue (4,096)."""
GAP_MAX = 80
"""Most messages after a gap.

The queue has room for fewer messages (:data:`tests.kit.attack.target.WSRM_BUFFER`).
"""
GAP_SECONDS = OPTIONAL_MAX + 2.0
"""Seconds for which a gap stays open, so that the witness notices a client that is kept out."""
NUMBERS = (1, 1, 1, 2, 2, 3, 4, 5, 9, 40, 2**31, 2**63 - 1, 2**63, 0)
_IDENTIFIER = re.compile(rb"CreateSequenceResponse.*?Identifier>\s*([^<\s]+)", re.DOTALL)


class Usual:
    """The values that most requests of one walk share, so that the requests meet.

    The values are the version, the queue and the names of sequences.
    """

    def __init__(self, rng: Random) -> None:
        self._version = rng.randrange(len(VERSIONS))
        self._queue = rng.choice(QUEUES)
        self._strays = rng.choice((0.0, 0.2, 0.6))
        self.names = NAMES[: rng.choice((1, 2, 3))]

    def version(self, rng: Random) -> int:
        """Draw an index of :data:`VERSIONS`: mostly the walk's own one, sometimes another one.

        Half of the others differ only in WS-ReliableMessaging, which most readers do not notice.
        """
        if rng.random() >= self._strays:
            return self._version
        return self._version ^ 1 if rng.random() < 0.5 else rng.randrange(len(VERSIONS))

    def queue(self, rng: Random) -> str:
        """Draw a queue: mostly the walk's own one."""
        return rng.choice(QUEUES) if rng.random() < self._strays / 2 else self._queue


class WsrmWalker:
    """Plans walks at the port of ``--listen-wsrm``."""

    port = "wsrm"
    at_once = AT_ONCE
    is_awaited = False

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return steps with requests about a few sequences; the first one creates a sequence.

        Most requests have one version and one queue; the others have any.
        """
        usual = Usual(rng)
        steps = [self._say(rng, usual, "CreateSequence")]
        return steps + [self._step(rng, usual) for _ in range(rng.choice((3, 8, 25)))]

    def _step(self, rng: Random, usual: Usual) -> Step:
        kind = rng.choices(("say", "flood", "idle", "heavy", "gap"), (100, 4, 1, 2, 2))[0]
        if kind == "idle":
            return idle(rng)
        if kind == "gap":
            return Step(
                "gap",
                {
                    "who": rng.choice(ADDRESSES),
                    "queue": usual.queue(rng),
                    "version": usual.version(rng),
                    "number": 1,
                    "count": rng.choice((10, GAP_MAX, GAP_MAX)),
                    "acks": "anonymous",
                    "id": "",
                    "seconds": GAP_SECONDS,
                },
            )
        step = self._say(rng, usual, rng.choice(OPERATIONS))
        if kind == "flood":
            given = {
                **step.given,
                "op": rng.choice(("CreateSequence", "CreateSequence", "Sequence")),
                "count": rng.choice((20, 300, FLOOD_MAX, FLOOD_MAX)),
            }
            # Only requests that are accepted can fill the table of sequences.
            if given["count"] == FLOOD_MAX:
                given["acks"] = "anonymous"
                given.pop("prefixes", None)
            return Step("flood", given)
        if kind == "heavy":
            given = {
                **step.given,
                "op": rng.choice(("Sequence", "nothing")),
                "prefixes": [
                    rng.choice((60, 124)),
                    rng.choice((1, 500, 3_500)),
                    rng.random() < 0.6,
                ],
                "size": rng.choice((200_000, 3_000_000)),
                "queue": rng.choice(QUEUES),
            }
            return Step("say", given)
        return step

    def _say(self, rng: Random, usual: Usual, operation: str) -> Step:
        given: dict[str, Any] = {
            **how(rng),
            "queue": usual.queue(rng),
            "op": operation,
            "version": usual.version(rng),
            "seq": rng.choice(usual.names),
            "number": rng.choice(NUMBERS),
            "acks": rng.choice(
                (
                    "anonymous",
                    "anonymous",
                    "anonymous",
                    "polled",
                    "http://127.0.0.2:9/acks",
                    "none",
                    "x y",
                )
            ),
            "id": rng.choice(("", "", "urn:uuid:same")),
        }
        if rng.random() < 0.25:
            given["prefixes"] = [
                rng.choice((1, 20, 55, 63, 90)),
                rng.choice((1, 2, 40)),
                rng.random() < 0.2,
            ]
        if operation == "CreateSequence" and rng.random() < 0.4:
            given["parameter"] = rng.choice(("text", "nested", "large"))
            # Each element has the most declarations that it may have. Together there are more
            # declarations than one element may have.
            if rng.random() < 0.5:
                given["prefixes"] = [rng.choice((33, 55, 60)), rng.choice((1, 2, 20)), False]
        if rng.random() < 0.1:
            given["size"] = rng.choice((1_000, 60_000, 1_000_000))
        if rng.random() < 0.15:
            given["mutated"] = rng.randrange(1 << 30)
        return Step("say", given)

    def player(self, scene: Scene) -> WsrmPlayer:
        """Return a player for one walk."""
        return WsrmPlayer(scene)


class WsrmPlayer(HttpPlayer):
    """Plays walks at the port of ``--listen-wsrm``."""

    port = "wsrm"
    allowed = HttpPlayer.allowed | {500}

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._identifiers = {name: f"urn:uuid:nobody-{name}" for name in NAMES}
        self._sent = 0

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "idle":
            await self.stay_idle(given)
        elif step.kind == "flood":
            raws = [
                self._raw({**given, "number": n + 2, "size": 0, "id": ""})
                for n in range(given["count"])
            ]
            await self.pipeline(raws, given)
        elif step.kind == "gap":
            await self._hold_gap(given)
        else:
            await self._say(given)

    async def _say(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        raw = self._raw(given)
        if "mutated" in given:
            raw = MUTATOR.mutate(raw, Random(given["mutated"]))
        answer = await self.request(
            raw, given, f"{given['op']} in version {given['version']} for {given['queue']}"
        )
        if answer is None:
            return
        self.scene.check_secrets(self.port, answer.content)
        if answer.status == 500 and b"Fault" not in answer.content:
            raise FoundError(
                Finding("answer", f"wsrm answered 500 without a fault of SOAP to {given['op']}")
            )
        begun = _IDENTIFIER.search(answer.content)
        if begun is not None:
            self._identifiers[given["seq"]] = begun[1].decode("ascii", "replace")

    async def _hold_gap(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        """Create a sequence and send messages from number 2, so that number 1 is missing.

        The gap stays open for a while. Nothing is sent if the sequence is refused.
        """
        asked = {**given, "conn": "gap", "seq": "gap", "op": "CreateSequence"}
        self._identifiers["gap"] = "urn:uuid:nobody-gap"
        answer = await self.request(self._raw(asked), asked, "CreateSequence")
        begun = _IDENTIFIER.search(answer.content) if answer is not None else None
        if begun is None:
            return
        self._identifiers["gap"] = begun[1].decode("ascii", "replace")
        raws = [
            self._raw({**asked, "op": "Sequence", "number": number + 2})
            for number in range(given["count"])
        ]
        await self.pipeline(raws, given)
        await asyncio.sleep(given["seconds"])

    def _raw(self, given: Any) -> bytes:  # noqa: ANN401  # a mapping of JSON values
        self._sent += 1
        soap = VERSIONS[given["version"]][0]
        headers = {"Host": "h", "Content-Type": MIME[soap], "SOAPAction": '"urn:a"'}
        envelope = envelope_of(given, self._identifiers[given["seq"]], self._sent).encode()
        return http_request("POST", f"/wsrm/{given['queue']}", envelope, headers)
