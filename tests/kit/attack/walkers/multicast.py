"""Walks at the multicast listener.

The walks have invented sources, windows that jump, paths to third parties, and random bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from random import Random
from typing import Any

from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import Data, Nak, PacketType, Spm
from tests.kit.attack.scene import GROUP, GROUP_PORT, Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers.playing import MUTATOR

NUMBERS = (0, 1, 2, 3, 50, 10_000, 2**31, 2**32 - 1)
PATHS = ("127.0.0.1", "127.0.0.1", "127.0.0.9", "239.192.77.1", "255.255.255.255")


class MulticastWalker:
    """Plans walks at the multicast group."""

    port = "pgm"
    at_once = 1
    is_awaited = False

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return 5 or 30 steps, each with the packets of one of 199 sources."""
        return [self._step(rng) for _ in range(rng.choice((5, 30)))]

    def _step(self, rng: Random) -> Step:
        given: dict[str, Any] = {
            "what": rng.choice(("spm", "odata", "odata", "rdata", "nak", "ncf", "octets")),
            "source": rng.randrange(1, 200),
            "number": rng.choice(NUMBERS),
            "trail": rng.choice(NUMBERS),
            "lead": rng.choice(NUMBERS),
            "path": rng.choice(PATHS),
            "size": rng.choice((0, 1, 100, 1_400)),
            "count": rng.choice((1, 1, 1, 20, 2_000)),
        }
        if rng.random() < 0.3:
            given["mutated"] = rng.randrange(1 << 30)
        return Step("packet", given)

    def player(self, scene: Scene) -> MulticastPlayer:
        """Return a player for one walk."""
        return MulticastPlayer(scene)


class MulticastPlayer:
    """Plays walks at the multicast group."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
        )
        self._spms = 0

    async def close(self) -> None:
        """Close the socket of this player."""
        self._socket.close()

    async def play(self, step: Step) -> None:
        """Send the packets of one step."""
        given = step.given
        for number in range(given["count"]):
            self.scene.requests["pgm"] += 1
            raw = self._raw(given, number)
            if "mutated" in given:
                raw = MUTATOR.mutate(raw, Random(given["mutated"] + number))
            with contextlib.suppress(OSError):
                self._socket.sendto(raw[:60_000], (GROUP, self.scene.ports["pgm"][1]))
            if number % 50 == 49:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)

    def _raw(self, given: Any, more: int) -> bytes:  # noqa: ANN401  # a mapping of JSON values
        tsi = Tsi(b"attack", given["source"])
        number = (given["number"] + more) % 2**32
        if given["what"] == "spm":
            self._spms += 1
            return encode(
                Spm(
                    tsi,
                    GROUP_PORT,
                    self._spms,
                    given["trail"],
                    given["lead"],
                    nla_of(given["path"]),
                )
            )
        if given["what"] in ("odata", "rdata"):
            return encode(
                Data(
                    given["what"] == "rdata",
                    tsi,
                    GROUP_PORT,
                    number,
                    given["trail"],
                    bytes(given["size"]),
                )
            )
        if given["what"] in ("nak", "ncf"):
            kind = PacketType.NAK if given["what"] == "nak" else PacketType.NCF
            return encode(Nak(kind, tsi, GROUP_PORT, number, nla_of("127.0.0.1"), nla_of(GROUP)))
        return Random(number).randbytes(given["size"])
