"""A day of traffic to a thousand destinations, a tenth of which is in trouble.

The simulation measures how far the destinations in trouble delay the others. The same traffic is
sent twice: to the good destinations alone, and to all destinations. Each row has the same time,
destination and answer in both runs. So a difference in delivery time is caused by the destinations
in trouble. These are dead (connections are refused), black-holed (packets are swallowed), silent,
slow (late answers), or refuse everything with 503 or with 400; a sixth of them each.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from random import Random

from srmp_spark.queue_manager.sender.process import IN_FLIGHT
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from tests.kit.wayout.peers import Manner, Net, Peer
from tests.kit.wayout.rig import Limits, Rig, simulated
from tests.kit.wayout.virtual_loop import VirtualLoop, run_virtual

TROUBLES = ("refused", "never", "silent", "late", "503", "400")
WARM_UP_S = 120.0
"""Seconds at the start whose rows are not measured.

A destination counts as in trouble only after its first attempt has failed.
"""
DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one run. ``seconds`` is its length; ``troubled_share`` is from 0 to 1."""

    destinations: int = 1_000
    troubled_share: float = 0.1
    seconds: float = 86_400.0
    pause_s: float = 60.0
    """Mean seconds between two batches for one destination. A batch has one to three rows."""
    connections: int = 1_000
    """Most connections that the sender process may open."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Ways:
    """Delivery times of rows to good destinations, in seconds from commit to arrival.

    ``p50``, ``p99`` and ``p999`` are percentiles, ``most`` is the longest time.
    """

    rows: int
    mean: float
    p50: float
    p99: float
    p999: float
    most: float

    def ratios(self, alone: Ways) -> dict[str, float]:
        """Return the ratio of each figure to the same figure of ``alone``, by name."""
        return {
            name: getattr(self, name) / getattr(alone, name)
            for name in ("mean", "p50", "p99", "p999", "most")
        }

    def __str__(self) -> str:
        figures = ", ".join(
            f"{name} {getattr(self, name) * 1_000:.1f}"
            for name in ("mean", "p50", "p99", "p999", "most")
        )
        return f"{self.rows} rows, ms: {figures}"


class _Day:
    def __init__(self, traffic: Traffic, *, with_troubled: bool) -> None:
        self._traffic = traffic
        self._net = Net(lambda peer, message: self._rig.receipt(peer, message))
        self._rig: Rig
        troubled = int(traffic.destinations * traffic.troubled_share)
        self._addresses = [
            f"10.{number // 250}.{number % 250}.1" for number in range(traffic.destinations)
        ]
        self._good = self._addresses[troubled:]
        self._is_good = frozenset(self._good)
        self._used = self._addresses if with_troubled else self._good
        for number, address in enumerate(self._addresses):
            drawn = Random(f"{traffic.seed} {address}")
            manner = Manner(
                latency_s=drawn.uniform(0.001, 0.05), answer_s=drawn.uniform(0.005, 0.1)
            )
            if number < troubled:
                _make_bad(manner, TROUBLES[number % len(TROUBLES)])
            self._net.peers[address] = Peer(manner)
        self._committed: dict[str, float] = {}
        self._ways: list[float] = []

    def run(self) -> list[float]:
        with simulated(self._net, Limits(self._traffic.connections)):
            _, bugs = run_virtual(self._net.connect, self._main)
        assert not bugs, bugs
        return self._ways

    async def _main(self, loop: VirtualLoop) -> None:
        self._rig = Rig(loop, self._net, settings=SenderSettings(in_flight_max=IN_FLIGHT))
        traffic, begun = self._traffic, loop.time()
        draws = {address: Random(f"{traffic.seed} rows for {address}") for address in self._used}
        due = [(drawn.uniform(0.0, traffic.pause_s), address) for address, drawn in draws.items()]
        heapq.heapify(due)
        swept_at = begun
        while due and due[0][0] < traffic.seconds:
            at, address = heapq.heappop(due)
            drawn = draws[address]
            await asyncio.sleep(max(0.0, begun + at - loop.time()))
            kind: Kind = "stream" if drawn.random() < 0.5 else "plain"
            names = [f"{address} {at:.6f} {number}" for number in range(drawn.randint(1, 3))]
            if at >= WARM_UP_S and address in self._is_good:
                self._committed.update((name, loop.time()) for name in names)
            loop.create_task(
                self._rig.commit({QueueKey(f"http://{address}/msmq/private$/q", kind): names})
            )
            heapq.heappush(due, (at + drawn.expovariate(1.0 / traffic.pause_s), address))
            if loop.time() - swept_at > DRAIN_S:
                swept_at = loop.time()
                self._sweep()
        await asyncio.sleep(DRAIN_S)
        self._sweep()
        assert not self._committed, (
            f"{len(self._committed)} rows for good destinations did not arrive"
        )
        await self._rig.dispatcher.transports.stop()

    def _sweep(self) -> None:
        """Move the arrivals from the peers to the results.

        Otherwise the peers would keep all rows of the day.
        """
        for address in self._good:
            peer = self._net.peers[address]
            for name, at in peer.taken:
                committed = self._committed.pop(name, None)
                if committed is not None:
                    self._ways.append(at - committed)
            peer.taken.clear()
            peer.seen.clear()


def _make_bad(manner: Manner, trouble: str) -> None:
    if trouble in ("refused", "never"):
        manner.connects = trouble
    elif trouble == "silent":
        manner.answers = False
    elif trouble == "late":
        manner.answer_s = 20.0
    else:
        manner.status = lambda row: int(trouble)


def _ways(found: list[float]) -> Ways:
    found.sort()
    p50, p99, p999 = (
        found[min(len(found) - 1, int(share * len(found)))] for share in (0.5, 0.99, 0.999)
    )
    return Ways(len(found), sum(found) / len(found), p50, p99, p999, found[-1])


def compare(traffic: Traffic) -> tuple[Ways, Ways]:
    """Return the delivery times to the good destinations: alone, and with all destinations.

    Raises :class:`AssertionError` if a row for a good destination does not arrive.
    """
    alone = _ways(_Day(traffic, with_troubled=False).run())
    together = _ways(_Day(traffic, with_troubled=True).run())
    assert alone.rows == together.rows, "the same rows were sent"
    return alone, together
