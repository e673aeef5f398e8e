"""Message identifiers have 32 bits: each is given out once, the last one too, and then it is refused in words."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import requests

from srmp_spark.errors import ApiError, StoreError
from srmp_spark.queue_manager.queues.identifiers import BLOCK, FEW, Identifiers
from srmp_spark.store.tables.state import IDENTIFIER_MAX, MESSAGE_IDENTIFIERS
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
COUNT = BLOCK + 5
"""Numbers that are left."""


class Journal:
    """Keeps the ceiling, after a moment in which others come in between; may fail."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.ceilings: list[int] = []

    async def transact(self, work: Callable[..., None]) -> None:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise StoreError("disk")
        self.ceilings.append(cast("Any", work).keywords["ceiling"])


def identifiers(left: int, journal: Journal | None = None) -> Identifiers:
    return Identifiers(
        cast("Any", journal or Journal()), MESSAGE_IDENTIFIERS, IDENTIFIER_MAX - left
    )


async def all_that_are_left(found: Identifiers) -> list[int]:
    numbers: list[int] = []

    async def take() -> None:
        while True:
            numbers.append(await found.take())

    with pytest.raises(ApiError) as refused:
        await take()
    assert (refused.value.status, refused.value.code) == (503, "identifiers-used-up")
    assert "begin a new data directory" in refused.value.hint
    return numbers


@pytest.mark.parametrize("left", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 500])
def test_the_last_numbers_are_given_out_once_each_and_never_another(left: int) -> None:
    async def run() -> None:
        journal = Journal()
        found = identifiers(left, journal)
        assert await all_that_are_left(found) == [
            *range(IDENTIFIER_MAX - left + 1, IDENTIFIER_MAX + 1)
        ]
        assert await all_that_are_left(found) == [], "it stays like that"
        with pytest.raises(ApiError):
            await found.reserve(1)
        assert journal.ceilings == sorted(journal.ceilings)
        assert journal.ceilings[-1:] in ([], [IDENTIFIER_MAX])
        again = Identifiers(
            cast("Any", journal), MESSAGE_IDENTIFIERS, max(journal.ceilings, default=IDENTIFIER_MAX)
        )
        assert await all_that_are_left(again) == [], "a restart finds none either"

    asyncio.run(run())


def test_receipts_and_batches_share_what_is_left() -> None:
    async def run() -> None:
        found = identifiers(3 * BLOCK)
        taken: list[int] = []

        async def take(count: int) -> None:
            taken.extend([await found.take() for _ in range(count)])

        async def reserve(count: int) -> None:
            first = await found.reserve(count)
            taken.extend(range(first, first + count))

        await asyncio.gather(take(700), reserve(BLOCK), take(299), reserve(1), reserve(499))
        with pytest.raises(ApiError):
            await found.reserve(
                BLOCK
            )  # a batch that is too large takes nothing from those that are not
        taken += await all_that_are_left(found)
        assert len(taken) == len(set(taken)) == 3 * BLOCK
        assert max(taken) == IDENTIFIER_MAX

    asyncio.run(run())


def test_a_block_whose_commit_failed_is_never_given_out() -> None:
    async def run() -> None:
        found = identifiers(2 * BLOCK, Journal(fails=1))
        with pytest.raises(StoreError):
            await found.take()
        assert await all_that_are_left(found) == [
            *range(IDENTIFIER_MAX - BLOCK + 1, IDENTIFIER_MAX + 1)
        ]

    asyncio.run(run())


def test_it_is_said_in_time_and_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        found = identifiers(FEW + BLOCK)
        await found.reserve(BLOCK)
        assert "identifiers.few" not in caplog.text
        await found.reserve(BLOCK)
        await found.reserve(BLOCK)
        assert caplog.text.count("identifiers.few left=") == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_a_queue_manager_whose_numbers_end_refuses_in_words_and_delivers_what_has_one(
    tmp_path: Path,
) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        running.stop()
        with closing(sqlite3.connect(tmp_path / "qm" / "store.db")) as connection, connection:
            connection.execute(
                "INSERT OR REPLACE INTO ids VALUES (?, ?)",
                (MESSAGE_IDENTIFIERS, IDENTIFIER_MAX - COUNT),
            )
        running.restart()
        line = [
            sys.executable,
            "-m",
            "srmp_spark.cli",
            "send",
            "--api",
            running.api,
            "--destination",
            peer.url(QUEUE),
        ]
        first = subprocess.run(
            [*line, "--body", "x", "--wait", "20"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert (
            json.loads(first.stdout)["message_id"]
            == f"{{{running.guid}}}\\{IDENTIFIER_MAX - COUNT + 1}"
        )
        item = {"destination": peer.url(QUEUE), "body_base64": ""}
        for count in (BLOCK - 1, 1, COUNT - BLOCK - 1):  # the last ones are less than a block
            answer = requests.post(
                f"{running.api}/v1/outgoing/messages", json=[item] * count, timeout=60
            )
            assert answer.status_code == 200
        assert answer.json()[-1]["message_id"] == f"{{{running.guid}}}\\{IDENTIFIER_MAX}"
        refused = subprocess.run(
            [*line, "--body", "y"], capture_output=True, text=True, timeout=60, check=False
        )
        assert (refused.returncode, refused.stdout) == (4, "")
        assert "message identifiers end at 4294967295; begin a new data directory" in refused.stderr
        assert refused.stderr.rstrip().endswith("[identifiers-used-up]")
        assert peer.wait(COUNT, 60), "what has a number arrives"
        assert len({message.uniquifier for message in peer.queues[QUEUE]}) == COUNT
