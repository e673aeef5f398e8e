"""Destinations that a stranger names without end: neither their number nor what waits for them ends forwarding for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from forwarding_kit import ELSEWHERE, LOOPBACK
from hostile_peers import Peers
from kit import until

from srmp_spark.srmp.forward.forward_room import FORWARD_DESTINATIONS_MAX
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import Wire

SENDER = "2744e4e1-2b48-43e8-b441-42745f280d53"
EVER = FORWARD_DESTINATIONS_MAX + 300
DEAD = (600, 300, 400)
"""New ones in each start; all of them would be too many."""


def send(running: RunningQueueManager, urls: Sequence[str], first: int) -> list[int]:
    """Post a message to each, with identifiers from ``first`` on, over one connection; the statuses."""

    async def run() -> list[int]:
        wire = Wire(lambda: running.endpoint, reply_timeout=10.0)
        statuses = []
        for number, url in enumerate(urls, first):
            message = ForeignMessage(
                to=url,
                lineage=SENDER,
                uniquifier=number,
                label="",
                sent_at=int(time.time()),
                body=b"x",
                durable=True,
            )
            statuses.append((await wire.exchange(post(message).raw)).status)
        await wire.close()
        return statuses

    return asyncio.run(run())


def test_1300_destinations_one_after_the_other_are_all_served(tmp_path: Path) -> None:
    with Peers() as peers, RunningQueueManager(tmp_path / "qm", allow_url=[LOOPBACK.replace("127.0.0.1", ELSEWHERE)],
                                               store_and_forward="true") as running:  # fmt: skip
        good = peers.answering(ELSEWHERE)
        for begin in range(1, EVER, 100):
            statuses = send(running, [f"{good}/q{n}" for n in range(begin, begin + 100)], begin)
            assert set(statuses) == {200}
            time.sleep(0.3)  # a sender's pace: what waits is the limit
        until(lambda: len(set(peers.paths())) >= EVER, "all of them arrive", 60)


def test_dead_destinations_over_restarts_stop_no_other_one(tmp_path: Path) -> None:
    with Peers() as peers:
        good, dead = peers.answering(ELSEWHERE), peers.refusing(ELSEWHERE)
        running = RunningQueueManager(
            tmp_path / "qm",
            allow_url=[LOOPBACK.replace("127.0.0.1", ELSEWHERE)],
            store_and_forward="true",
        )
        number, taken = 1, 0
        for start, count in enumerate(DEAD):
            with running:
                if (
                    start < len(DEAD) - 1
                ):  # there is room, as soon as what waits since before the start is counted
                    until(
                        lambda: send(running, [f"{good}/q"], number) == [200],  # noqa: B023
                        "a message for another one is taken",
                        40,
                    )
                    number += 1
                    until(lambda start=start: len(list(peers.paths())) > start, "it leaves", 40)
                statuses = send(running, [f"{dead}/d{start}-{n}" for n in range(count)], number)
                number += len(statuses)
                taken += statuses.count(200)
                assert set(statuses) <= {200, 503}
                if start < len(DEAD) - 1:
                    assert set(statuses) == {200}
                else:
                    assert taken <= FORWARD_DESTINATIONS_MAX, (
                        "the start has renewed nothing, not for a moment"
                    )
                    until(
                        lambda: send(running, [f"{dead}/d0-0"], number) == [200],  # noqa: B023
                        "what holds takes more",
                        40,
                    )
