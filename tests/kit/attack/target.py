"""The target: a real ``serve`` with every port open, and checks of what it does.

The memory, the log and the process are checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.attack.destinations import Destinations
from tests.kit.attack.judge import MEMORY_MAX, Finding
from tests.kit.attack.machine import memory_of
from tests.kit.attack.planted import environment_for
from tests.kit.attack.remotes import HostileRemote
from tests.kit.attack.scene import (
    ADMIN_TOKEN,
    GROUP,
    GROUP_PORT,
    HONEST,
    OWN,
    PRICES,
    READER_TOKEN,
    SECRET,
    SHARED,
    WRITER_TOKEN,
    Scene,
)

WSRM_BUFFER = 64
"""Number of unread messages at which clients of WS-ReliableMessaging must wait.

A sequence also holds at most this number of messages after a gap. If a client's gap counted against
the other clients, it would stop them at once. The witness reads the queue during the whole attack.
"""
_BAD = re.compile(
    r"Traceback \(most recent call last\)|\w+\.died pid=|\.silent "
    r"pid=|accept\.fatal|_failed\b.*Error|disk"
)
"""Lines of the log that no request may cause."""
_HARMLESS = re.compile(r"disk_free|disk\.low")


class Target:
    """One data directory that is served, killed and served again."""

    def __init__(
        self,
        folder: Path,
        remotes: Mapping[str, HostileRemote],
        destinations: Destinations,
        *,
        plant: str = "",
    ) -> None:
        """Prepare the target; ``remotes`` are the remote queue managers by mode.

        The remote queue managers and the ``destinations`` listen already. ``plant`` names a bug of
        :mod:`.planted`.
        """
        self._destinations = destinations
        self._remotes = dict(remotes)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "serve.toml"
        config.write_text(_config() + "".join(each.config() for each in remotes.values()))
        self._pgm, self._mapper = kept_port(), kept_port()
        self.running = RunningQueueManager(
            folder / "data",
            queues=[
                SHARED,
                SECRET,
                OWN,
                HONEST,
                "private$/ordered:transactional",
                f"{PRICES}:multicast={GROUP}:{GROUP_PORT}",
            ],
            environment=environment_for(plant),
            config=config,
            listen_wsrm="127.0.0.1:0",
            wsrm_buffer=WSRM_BUFFER,
            host_name="127.0.0.1",
            rpc="127.0.0.1:0",
            rpc_endpoint_mapper=f"127.0.0.1:{self._mapper}",
            pgm=f"udp:{self._pgm}",
        )
        self._read = 0
        self.memory_worst = 0

    def start(self) -> Scene:
        """Start the target and return its scene.

        Raises :class:`ServeFailedError` if the target does not become ready.
        """
        self.running.start()
        return self.scene()

    def scene(self) -> Scene:
        """Return a new scene with the addresses of the running target, and counters at zero."""
        host, _, port = self.running.api.partition("://")[2].rpartition(":")
        rpc, _, rpc_port = self.running.ready["rpc"].rpartition(":")
        ports = {
            "srmp": self.running.endpoint,
            "wsrm": self.running.wsrm,
            "api": (host, int(port)),
            "rpc": (rpc, int(rpc_port)),
            "mapper": ("127.0.0.1", self._mapper),
            "pgm": ("127.0.0.1", self._pgm),
        }
        return Scene(
            ports, epoch=self.running.epoch, remotes=self._remotes, destinations=self._destinations
        )

    def restart(self) -> Finding | None:
        """Kill the target with signal 9 and start it again on the same ports.

        Return a finding if the target does not become ready, else ``None``.
        """
        self.running.kill9()
        # The helpers of the killed process may log errors, which are no finding.
        self._read = len(self.running.stderr())
        try:
            self.running.restart()
        except ServeFailedError as error:
            return Finding("restart", str(error)[-600:])
        return None

    def stop(self) -> None:
        """Kill the target if it still runs."""
        if self.running.process is not None and self.running.process.poll() is None:
            self.running.kill9()

    def look(self) -> Finding | None:
        """Return a finding if the process has ended, uses too much memory, or has logged a fault.

        Return ``None`` otherwise. Each line of the log is checked only once.
        """
        process = self.running.process
        assert process is not None, "it was started"
        if process.poll() is not None:
            return Finding(
                "exit", f"serve ended with {process.returncode}: {self.running.stderr()[-600:]}"
            )
        found = self._log()
        if found is not None:
            return found
        memory = memory_of(self.running.pid)
        self.memory_worst = max(self.memory_worst, memory)
        if memory > MEMORY_MAX:
            return Finding("memory", f"{memory / 1e6:.0f} MB, over {MEMORY_MAX / 1e6:.0f} MB")
        return None

    def _log(self) -> Finding | None:
        text = self.running.stderr()
        fresh, self._read = text[self._read :], len(text)
        for match in _BAD.finditer(fresh):
            line = fresh[fresh.rfind("\n", 0, match.start()) + 1 :]
            if not _HARMLESS.search(line.partition("\n")[0]):
                return Finding("log", line[:4_000])
        return None


def _config() -> str:
    tokens = (
        ("reader", READER_TOKEN, f'["{OWN}"]', '["read"]'),
        ("writer", WRITER_TOKEN, f'["{OWN}"]', '["enqueue"]'),
        ("all", ADMIN_TOKEN, '["*"]', '["read", "enqueue", "admin"]'),
    )
    return "".join(
        f'[[token]]\nname = "{name}"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        f"queues = {queues}\nverbs = {verbs}\n"
        for name, token, queues, verbs in tokens
    )
