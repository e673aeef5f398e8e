"""The scene: where a walker finds the target, who it may be, and what it must never see."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.kit.attack.destinations import Destinations
from tests.kit.attack.judge import Finding, FoundError
from tests.kit.attack.remotes import HostileRemote

SHARED = "private$/shared"
"""Everybody sends to it, good and bad."""
SECRET = "private$/secret"  # noqa: S105  # a queue's name
"""No restricted token is for it; what is in it holds a canary."""
OWN = "private$/low"
"""The queue of the restricted tokens."""
HONEST = "private$/honest"
"""The good sender's queue; no walker sends to it."""
GROUP = "239.192.77.1"
"""Multicast group of :data:`PRICES`."""
GROUP_PORT = 8001
PRICES = "private$/prices"
"""The queue that listens to :data:`GROUP`."""

READER_TOKEN = "reader-token-of-the-attack"  # noqa: S105  # of the target that we start
"""It may read :data:`OWN`."""
WRITER_TOKEN = "writer-token-of-the-attack"  # noqa: S105  # the same
"""It may enqueue to :data:`OWN`."""
ADMIN_TOKEN = "admin-token-of-the-attack"  # noqa: S105  # the same
"""It may do everything."""
CANARY = "canary-5e1f0d"
"""Stands in every message of :data:`SECRET`, and in nothing else."""
ACCOUNT, PASSWORD = "LAB\\reader", "reader's password"  # of the target that we start
"""The account of remote read."""


@dataclass(slots=True)
class Scene:
    """What one target offers to its walkers, and what they count."""

    ports: dict[str, tuple[str, int]]
    """Host and port by name: srmp, wsrm, api, rpc, mapper."""
    secrets: set[str] = field(default_factory=lambda: {CANARY})
    """Texts that no answer to a restricted identity may hold."""
    epoch: str = ""
    """Of the target's store, for readers of its rows."""
    remotes: dict[str, HostileRemote] = field(default_factory=dict)
    """The remote queue managers that the target reads from, by mode."""
    destinations: Destinations | None = None
    """Where the target sends to; none for a player that sends nothing."""
    requests: Counter[str] = field(default_factory=Counter)
    """Requests by port."""
    sequences: Counter[str] = field(default_factory=Counter)
    """Walks by port."""

    def check_secrets(self, port: str, content: bytes) -> None:
        """Raise :class:`FoundError` if ``content`` shows what its reader has no right to."""
        for secret in self.secrets:
            if secret.encode() in content:
                raise FoundError(
                    Finding("leak", f"{port} showed {secret!r} to one who may not see it")
                )
