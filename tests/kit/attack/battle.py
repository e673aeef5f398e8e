"""Runs a battle: one target, its witness, and walks, until a finding or the end of the time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.testing.queue_manager import ServeFailedError
from tests.kit.attack.destinations import Destinations
from tests.kit.attack.judge import PULL_MAX, SENT_MAX, Finding, FoundError
from tests.kit.attack.remotes import HostileRemote
from tests.kit.attack.scene import ADMIN_TOKEN, HONEST, Scene
from tests.kit.attack.secrets import leave_secrets
from tests.kit.attack.steps import Walk
from tests.kit.attack.target import Target
from tests.kit.attack.walkers.every import WALKERS

LOOK_SECONDS = 0.5
"""Seconds between two checks of the process and the witness."""
ROUND_SECONDS = 25.0
"""Seconds between two kills of the target; each start reads the data that attackers stored."""
LINGER_SECONDS = 2 * max(PULL_MAX, SENT_MAX) + 15.0
"""Seconds after a round's end in which walks may still wait for their results.

The time is doubled, because on a busy machine the patience of walks doubles.
"""
RECENT_MAX = 60
"""Number of the latest walks of each port that are kept, to be played again after a finding."""
SETTLE_SECONDS = 1.0
"""Pause after the last step of a replay, in seconds, because the step's effects may be late."""


class Battle:
    """One target and its witness, from start to end."""

    def __init__(self, folder: Path, *, plant: str = "") -> None:
        self.remotes = {mode: HostileRemote(mode) for mode in ("move", "copy")}
        self.destinations = Destinations()
        self._target = functools.partial(
            Target, folder / "target", self.remotes, self.destinations, plant=plant
        )
        self.target: Target
        self.recent: dict[str, deque[Walk]] = {port: deque(maxlen=RECENT_MAX) for port in WALKERS}
        self.worst: Counter[str] = Counter()
        self.restarts = 0
        self._awaited = 0
        """Number of walks in progress that wait for their results (:attr:`Walker.is_awaited`)."""
        self.acknowledged = 0
        self._witness: asyncio.subprocess.Process | None = None
        self.scene: Scene

    @contextlib.asynccontextmanager
    async def fought(self) -> AsyncIterator[Battle]:
        """Start the servers, the target and the witness; end all of them in any case.

        Raises :class:`ServeFailedError` if the target does not become ready.
        """
        try:
            for remote in self.remotes.values():
                remote.start()
            self.destinations.start()
            self.target = self._target()
            self.scene = await asyncio.to_thread(self.target.start)
            await asyncio.to_thread(leave_secrets, self.scene)
            await self._start_witness()
            yield self
        finally:
            if self._witness is not None:
                self._witness.kill()
                await self._witness.wait()
            await asyncio.to_thread(self.target.stop)
            for remote in self.remotes.values():
                remote.stop()
            self.destinations.stop()

    async def _start_witness(self) -> None:
        self._witness = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.kit.attack.witness",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        assert self._witness.stdin is not None
        begin = {
            "ports": self.scene.ports,
            "epoch": self.target.running.epoch,
            "pid": self.target.running.pid,
        }
        self._witness.stdin.write(json.dumps(begin).encode() + b"\n")

    async def _ask_witness(self, command: str) -> dict[str, Any]:
        assert self._witness is not None
        assert self._witness.stdin is not None
        assert self._witness.stdout is not None
        self._witness.stdin.write(
            json.dumps({"do": command, "pid": self.target.running.pid}).encode() + b"\n"
        )
        line = await asyncio.wait_for(self._witness.stdout.readline(), 120.0)
        if not line:
            raise RuntimeError("the witness ended: its own error stands above")
        report: dict[str, Any] = json.loads(line)
        self.acknowledged = report["acknowledged"]
        self.scene.secrets.update(report["identifiers"])
        for what, seconds in report["worst"].items():
            self.worst[what] = max(self.worst[what], seconds)
        return report

    # --- judging ----------------------------------------------------------------------------------

    async def look(self) -> Finding | None:
        """Check the process, its log and the witness, and return a finding, or ``None``.

        If there are several findings, that of the process has precedence.
        """
        found = await asyncio.to_thread(self.target.look)
        report = await self._ask_witness("report")
        if found is None and report["findings"]:
            found = Finding(**report["findings"][0])
        return found

    async def restart(self) -> Finding | None:
        """Kill the target, start it again, and check its stored rows.

        Return a finding if the witness had one, the target does not become ready or answer, or data
        was lost or set aside; else ``None``.
        """
        report = await self._ask_witness("pause")
        if report["findings"]:
            return Finding(**report["findings"][0])
        self.restarts += 1
        found = await asyncio.to_thread(self.target.restart)
        if found is not None:
            return found
        found = await asyncio.to_thread(self._check_store)
        await self._ask_witness("resume")
        return found

    def _check_store(self) -> Finding | None:
        client = QueueManagerClient(self.target.running.api, ADMIN_TOKEN, retry_seconds=30)
        try:
            set_aside = client.status()["set_aside"]
            if set_aside:
                return Finding("set-aside", f"rows that cannot be read: {set_aside}")
            return self._check_rows(client)
        except (ApiError, ApiUnreachableError) as error:
            return Finding("api", f"the API after a restart: {error}")

    def _check_rows(self, client: QueueManagerClient) -> Finding | None:
        """Return a finding unless every answered message is stored once, in order.

        One further message may be stored, because its answer may have been lost.
        """
        import pyarrow as pa

        epoch = self.target.running.epoch
        end = client.range(HONEST, epoch=epoch, after=0).end
        numbers: list[int] = []
        if end:
            with client.rows(HONEST, epoch=epoch, after=0, to=end) as stream:
                rows = pa.ipc.open_stream(stream.as_file()).read_all()
            numbers = [int(body) for body in rows.column("body").to_pylist()]
        wanted = list(range(1, self.acknowledged + 1))
        if numbers[: len(wanted)] != wanted or len(numbers) > len(wanted) + 1:
            missing = sorted(set(wanted) - set(numbers))[:10]
            return Finding(
                "lost", f"{len(wanted)} were answered, {len(numbers)} are there; missing {missing}"
            )
        return None

    # --- attacking --------------------------------------------------------------------------------

    async def attack(
        self, seed: int, ports: Sequence[str], until: float, progress: Callable[[Battle], None]
    ) -> Finding | None:
        """Play random walks at all ``ports`` and return the first finding.

        The walks follow from ``seed``. The target is killed and started again after each round of
        :data:`ROUND_SECONDS`. ``progress`` is called about twice a second. The result is ``None``
        if there is no finding at the time ``until``.
        """
        number = 0
        while time.monotonic() < until:
            number += 1
            end = min(until, time.monotonic() + ROUND_SECONDS)
            walks = [(port, n) for port in ports for n in range(WALKERS[port].at_once)]
            jobs = [self._wander(port, f"{seed}/{port}/{number}/{n}", end) for port, n in walks]
            found = await self._round(jobs, end, progress)
            found = found or await self.restart()
            if found is not None:
                return found
        return None

    async def _round(
        self, jobs: Sequence[Any], end: float, progress: Callable[[Battle], None]
    ) -> Finding | None:
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            while True:
                await asyncio.wait(tasks, timeout=LOOK_SECONDS)
                for task in tasks:
                    if task.done():
                        found = _found_by(task)
                        if found is not None:
                            return await self._explained(found)
                found = await self.look()
                if found is not None:
                    return found
                progress(self)
                if all(task.done() for task in tasks) or time.monotonic() > end + LINGER_SECONDS:
                    return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _explained(self, found: Finding) -> Finding:
        """Return the process's own finding if it has one, else ``found``.

        A walker only sees that the target does not answer. The process may show the reason.
        """
        await asyncio.sleep(SETTLE_SECONDS)
        return await asyncio.to_thread(self.target.look) or found

    async def _wander(self, port: str, seed: str, end: float) -> None:
        number = 0
        while self._goes_on(port, end):
            number += 1
            name = f"{seed}/{number}"
            walk = Walk(port, name, tuple(WALKERS[port].plan(Random(name))))
            self.recent[port].append(walk)
            await self.play(walk, end)

    def _goes_on(self, port: str, end: float) -> bool:
        """Return whether the walks of ``port`` may go on.

        They go on until ``end``. After ``end``, walks that are not awaited go on for at most
        :data:`LINGER_SECONDS`, while awaited walks still wait for their results.
        """
        now = time.monotonic()
        return now < end or (
            not WALKERS[port].is_awaited and self._awaited > 0 and now < end + LINGER_SECONDS
        )

    async def play(self, walk: Walk, end: float) -> None:
        """Play one walk; stop after a step when the walks of its port may no longer go on.

        Raises :class:`FoundError` for a finding.
        """
        self.scene.sequences[walk.port] += 1
        player = WALKERS[walk.port].player(self.scene)
        self._awaited += WALKERS[walk.port].is_awaited
        try:
            for step in walk.steps:
                await player.play(step)
                if not self._goes_on(walk.port, end):
                    break
        finally:
            self._awaited -= WALKERS[walk.port].is_awaited
            await player.close()

    async def replay(self, walks: Sequence[Walk]) -> Finding | None:
        """Play ``walks`` for at most 300 s, then restart the target.

        Return the finding, or ``None``. The walks of one port run one after the other. All ports
        run at the same time.
        """
        end = time.monotonic() + 300

        async def of_port(port: str) -> None:
            for walk in walks:
                if walk.port == port:
                    await self.play(walk, end)
            await asyncio.sleep(SETTLE_SECONDS)

        jobs = [of_port(port) for port in dict.fromkeys(walk.port for walk in walks)]
        return await self._round(jobs, end, lambda _: None) or await self.restart()


def _found_by(task: asyncio.Task[None]) -> Finding | None:
    error = task.exception()
    if isinstance(error, FoundError):
        return error.finding
    if error is not None:
        raise error
    return None


async def replayed(walks: Sequence[Walk], folder: Path, *, plant: str = "") -> Finding | None:
    """Play ``walks`` at a new target with its data in ``folder``.

    Return the finding, or ``None``. ``plant`` names a bug to plant, or is empty. A target that does
    not become ready is a finding.
    """
    try:
        async with Battle(folder, plant=plant).fought() as battle:
            return await battle.replay(walks)
    except ServeFailedError as error:
        return Finding("restart", str(error)[-600:])
