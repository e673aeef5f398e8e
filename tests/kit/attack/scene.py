"""The scene of a walker: the target's addresses, the identities, and the secrets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.kit.attack.destinations import Destinations
from tests.kit.attack.judge import Finding, FoundError
from tests.kit.attack.remotes import HostileRemote

SHARED = "private$/shared"
"""Queue to which all clients send, good and bad ones."""
SECRET = "private$/secret"  # noqa: S105  # This is the name of a queue.
"""Queue that no restricted token may access. Each of its messages holds :data:`CANARY`."""
OWN = "private$/low"
"""The only queue that restricted tokens may access."""
HONEST = "private$/honest"
"""Queue of the good sender; no walker sends to it."""
GROUP = "239.192.77.1"
"""Multicast group whose messages :data:`PRICES` receives."""
GROUP_PORT = 8001
PRICES = "private$/prices"
"""Queue that listens to :data:`GROUP`."""

# The tokens and the password are only for the target that the attack starts.
READER_TOKEN = "reader-token-of-the-attack"  # noqa: S105
"""Token that may read :data:`OWN`."""
WRITER_TOKEN = "writer-token-of-the-attack"  # noqa: S105
"""Token that may enqueue to :data:`OWN`."""
ADMIN_TOKEN = "admin-token-of-the-attack"  # noqa: S105
"""Token that may do everything."""
CANARY = "canary-5e1f0d"
"""Text that is in every message of :data:`SECRET`, and nowhere else."""
ACCOUNT, PASSWORD = "LAB\\reader", "reader's password"
"""The account and the password for remote read."""


@dataclass(slots=True)
class Scene:
    """The ports and secrets of one target, with the walkers' counters.

    The scene is valid also after a restart of the target.
    """

    ports: dict[str, tuple[str, int]]
    """Host and port by name: srmp, wsrm, api, rpc, mapper, pgm."""
    secrets: set[str] = field(default_factory=lambda: {CANARY})
    """Texts that no answer to a restricted identity may hold."""
    epoch: str = ""
    """The epoch of the target's store, for readers of its rows."""
    remotes: dict[str, HostileRemote] = field(default_factory=dict)
    """The remote queue managers from which the target reads, by mode."""
    destinations: Destinations | None = None
    """The destinations of the target; None for a player that sends no messages."""
    requests: Counter[str] = field(default_factory=Counter)
    """Number of requests by port."""
    sequences: Counter[str] = field(default_factory=Counter)
    """Number of walks by port."""

    def check_secrets(self, port: str, content: bytes) -> None:
        """Raise :class:`FoundError` if ``content``, an answer of ``port``, holds a secret."""
        for secret in self.secrets:
            if secret.encode() in content:
                raise FoundError(
                    Finding("leak", f"{port} showed {secret!r} to one who may not see it")
                )
