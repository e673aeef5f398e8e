"""A simulated multicast group.

Each link loses single packets and bursts of packets, and doubles, delays, reorders and damages
packets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.kit.sim_clock import SimClock

HEALTHY_DELAY_S = 0.001
BURST_S_MAX = 1.5

Deliver = Callable[[bytes, str], None]
"""Receives a packet and the name of the host that sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFaults:
    """The faults of the network. Probabilities, from 0 to 1, apply to each packet on each link."""

    loss: float = 0.0
    burst: float = 0.0
    """Probability that a packet begins a burst, in which the link loses everything for a while."""
    duplicate: float = 0.0
    damage: float = 0.0
    delay: float = 0.005
    """Mean of the exponentially distributed delay, in seconds. Packets can overtake each other."""

    @classmethod
    def drawn(cls, random: Random) -> GroupFaults:
        """Return random faults, drawn from the generator of a seed."""
        return cls(
            loss=random.choice((0.0, random.uniform(0.0, 0.3))),
            burst=random.choice((0.0, 0.0, random.uniform(0.0, 0.02))),
            duplicate=random.choice((0.0, random.uniform(0.0, 0.3))),
            damage=random.choice((0.0, random.uniform(0.0, 0.05))),
            delay=random.choice((0.0002, 0.002, 0.03)),
        )


class Group:
    """Connects hosts by name. Set :attr:`faults` to ``None`` to end all faults."""

    def __init__(self, clock: SimClock, random: Random, faults: GroupFaults | None) -> None:
        self._clock = clock
        self._random = random
        self.faults = faults
        self.spares: Callable[[bytes], bool] = lambda packet: False
        """Returns whether a packet is exempt from faults. The simulation replaces the function."""
        self._hosts: dict[str, Deliver] = {}
        self._down_until: dict[tuple[str, str], float] = {}
        self.lost = 0

    def join(self, name: str, deliver: Deliver) -> None:
        """Register the host ``name``: each packet for the host is passed to ``deliver``."""
        self._hosts[name] = deliver

    def cut(self, name: str, seconds: float) -> None:
        """Drop all packets to ``name`` for the next ``seconds``, while the network has faults."""
        for other in self._hosts:
            self._down_until[other, name] = self._clock.now + seconds

    def multicast(self, sender: str, packet: bytes) -> None:
        """Send a packet to all hosts except the sender, to each as :meth:`unicast` does."""
        for name in self._hosts:
            if name != sender:
                self.unicast(sender, name, packet)

    def unicast(self, sender: str, name: str, packet: bytes) -> None:
        """Send a packet to one host, subject to the faults. Do nothing if the host is unknown."""
        if name not in self._hosts:
            return
        faults, random, clock = self.faults, self._random, self._clock
        if faults is None or self.spares(packet):
            clock.after(HEALTHY_DELAY_S, self._arrive, name, packet, sender)
            return
        link = (sender, name)
        if faults.burst and random.random() < faults.burst:
            self._down_until[link] = clock.now + random.uniform(0.0, BURST_S_MAX)
        if self._down_until.get(link, 0.0) > clock.now or random.random() < faults.loss:
            self.lost += 1
            return
        if faults.damage and random.random() < faults.damage:
            bit = random.randrange(len(packet) * 8)
            damaged = bytearray(packet)
            damaged[bit // 8] ^= 1 << bit % 8
            packet = bytes(damaged)
        for _ in range(2 if random.random() < faults.duplicate else 1):
            clock.after(random.expovariate(1.0 / faults.delay), self._arrive, name, packet, sender)

    def _arrive(self, name: str, packet: bytes, sender: str) -> None:
        self._hosts[name](packet, sender)
