"""Walks at the SRMP port: messages, streams, receipts and other bytes, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from srmp_spark.testing.foreign.messages import Dialect, ForeignMessage, ForeignStream, post
from tests.kit.attack.scene import SECRET, SHARED, Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.playing import ADDRESSES, MUTATOR, HttpPlayer, how, idle

LINEAGES = tuple(f"0a0b0c0d-aaaa-bbbb-cccc-{number:012d}" for number in range(3))
"""Identities of sending queue managers."""
QUEUES = (
    SHARED,
    SHARED,
    SHARED,
    "private$/ordered",
    "private$/ordered",
    SECRET,
    "private$/nobody",
    "private$/order_queue$",
    "private$/shared;journal",
    "private$/shared;poison",
    "..%2f..",
    "private$/forward$",
)
SENT_AT = 1_790_000_000
BAD = "http://{bad}/msmq/private$/order_queue$"
"""URL for receipts to the hostile server (:mod:`tests.kit.attack.hostile_http`).

The player puts the server's address in place of ``{bad}``.
"""
SIZES = (0, 1, 10, 1_000, 60_000, 1_000_000, 4_000_000)


class SrmpWalker:
    """Plans walks at the SRMP port."""

    port = "srmp"
    at_once = 1
    is_awaited = False

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return steps with messages that collide, because identities and identifiers are few."""
        return [self._step(rng) for _ in range(rng.choice((3, 10, 30)))]

    def _step(self, rng: Random) -> Step:
        kind = rng.choices(("post", "flood", "idle", "raw"), (90, 3, 1, 3))[0]
        if kind == "idle":
            return idle(rng)
        if kind == "raw":
            return Step(
                "raw",
                {
                    **how(rng),
                    "octets": rng.randbytes(rng.choice((1, 50, 5_000))).hex(),
                    "mutated": 1,
                },
            )
        given: dict[str, Any] = {**how(rng), "message": self._message(rng)}
        if kind == "flood":
            return Step(
                "flood",
                {**given, "count": rng.choice((20, 200, 1_000)), "reads": rng.random() < 0.7},
            )
        if rng.random() < 0.3:
            given["mutated"] = rng.randrange(1 << 30)
        given["dialect"] = rng.choice(list(Dialect)).value
        return Step("post", given)

    def _message(self, rng: Random) -> dict[str, Any]:
        message: dict[str, Any] = {
            "queue": rng.choice(QUEUES),
            "lineage": rng.choice(LINEAGES),
            "number": rng.randrange(1, 40),
            "size": rng.choices(SIZES, (5, 5, 20, 10, 5, 1, 1))[0],
        }
        if rng.random() < 0.5:
            current = rng.randrange(1, 12)
            message["stream"] = [
                rng.randrange(1, 4),
                current,
                rng.choice((0, current - 1, rng.randrange(12))),
            ]
            if current == 1 or rng.random() < 0.3:
                message["receipts_to"] = rng.choice(
                    (
                        BAD,
                        BAD,
                        "http://127.0.0.2:9/msmq/private$/order_queue$",
                        "http://[::1]/x",
                        "no url",
                        "http://a/" + "b" * 3_000,
                    )
                )
        if rng.random() < 0.2:
            message["more"] = rng.choice(
                (
                    {"durable": True},
                    {"priority": rng.choice((0, 7, 8, 255))},
                    {"label": "l" * rng.choice((249, 250, 9_000))},
                    {"delivery_receipt_to": BAD},
                    {"expires_at": 1},
                    {"message_class": 255},
                    {
                        "commitment_receipt_to": "http://127.0.0.2:9/msmq/private$/q",
                        "journal": True,
                    },
                    {"commitment_receipt_to": BAD, "delivery_receipt_to": BAD},
                )
            )
        return message

    def player(self, scene: Scene) -> SrmpPlayer:
        """Return a player for one walk."""
        return SrmpPlayer(scene)


class SrmpPlayer(HttpPlayer):
    """Plays walks at the SRMP port."""

    port = "srmp"

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for a finding."""
        given = step.given
        if step.kind == "idle":
            await self.stay_idle(given)
        elif step.kind == "raw":
            await self.request(bytes.fromhex(given["octets"]) + b"\r\n\r\n", given, "no HTTP")
        elif step.kind == "flood":
            first = given["message"]["number"]
            raws = [
                self._raw({**given["message"], "number": first + n}, Dialect.EXAMPLES)
                for n in range(given["count"])
            ]
            await self.pipeline(raws, given, reads=given["reads"])
        else:
            raw = self._raw(given["message"], Dialect(given["dialect"]))
            if "mutated" in given:
                raw = MUTATOR.mutate(raw, Random(given["mutated"]))
            await self.request(raw, given, f"a message for {given['message']['queue']}")

    def _raw(self, given: dict[str, Any], dialect: Dialect) -> bytes:
        host, port = self.scene.ports["srmp"]
        more: dict[str, Any] = dict(given.get("more", {}))
        more |= {name: self._url(value) for name, value in more.items() if name.endswith("_to")}
        stream = None
        if "stream" in given:
            ordinal, current, previous = given["stream"]
            stream = ForeignStream(
                guid=given["lineage"],
                ordinal=SENT_AT << 32 | ordinal,
                current=current,
                previous=previous,
                receipts_to=self._url(given.get("receipts_to")),
            )
        message = ForeignMessage(
            to=f"http://{host}:{port}/msmq/{given['queue']}",
            lineage=given["lineage"],
            uniquifier=given["number"],
            sent_at=SENT_AT,
            body=b"x" * given["size"],
            stream=stream,
            **more,
        )
        return post(message, dialect).raw

    def _url(self, written: str | None) -> str | None:
        bad = self.scene.destinations
        return (
            written
            if written is None or bad is None
            else written.replace("{bad}", f"{ADDRESSES[0]}:{bad.bad.port}")
        )
