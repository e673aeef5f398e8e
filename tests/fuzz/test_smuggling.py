"""Two hundred ambiguous requests against a real ``serve`` (T18): nothing behind an unclear end is ever taken for a message."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pytest

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.fuzz.smuggling import BOTH, LINEAGE, NONE, Shape, shapes

SHAPES = shapes()
SENDERS = 16
QUIET = 0.4
"""Seconds without a byte after which nothing more comes."""


class Outcome(NamedTuple):
    statuses: list[int]
    closed: bool


def say(endpoint: tuple[str, int], raw: bytes) -> Outcome:
    """The answers to ``raw``, and whether the connection was ended."""
    received, closed = b"", False
    with socket.create_connection(endpoint, timeout=5) as connection:
        with contextlib.suppress(OSError):  # it may answer and close while we still write
            connection.sendall(raw)
        connection.settimeout(QUIET)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                data = connection.recv(65_536)
            except TimeoutError:
                break
            except OSError:
                data = b""
            if not data:
                closed = True
                break
            received += data
    return Outcome([int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)], closed)


def stored(api: str) -> set[int]:
    """The numbers of the messages that are rows."""
    with urllib.request.urlopen(
        f"{api}/v1/queues/{quote('private$/smuggled', safe='')}/range"
    ) as answer:
        found = json.load(answer)
    rows = f"rows?epoch={found['epoch']}&after={found['first'] - 1}&to={found['last']}"
    with urllib.request.urlopen(
        f"{api}/v1/queues/{quote('private$/smuggled', safe='')}/{rows}"
    ) as answer:
        table = pa.ipc.open_stream(answer.read()).read_all()
    assert set(table["lineage"].to_pylist()) == {LINEAGE}
    return set(table["uniquifier"].to_pylist())


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[dict[int, Outcome], set[int], str]]:
    """What each shape was answered, which messages were stored, and the log."""
    directory = tmp_path_factory.mktemp("smuggling") / "data"
    with (
        RunningQueueManager(directory, queues=["private$/smuggled"]) as running,
        ThreadPoolExecutor(SENDERS) as pool,
    ):
        answers = dict(
            zip(
                (s.number for s in SHAPES),
                pool.map(lambda s: say(running.endpoint, s.raw), SHAPES),
                strict=True,
            )
        )
        yield answers, stored(running.api), running.stderr()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_is_read_as_rfc_9112_reads_it_or_refused(
    shape: Shape, outcomes: tuple[dict[int, Outcome], set[int], str]
) -> None:
    answers, rows, _ = outcomes
    statuses, closed = answers[shape.number]
    own, hidden = 2 * shape.number, 2 * shape.number + 1
    assert {own, hidden} & rows == {own, hidden} - (
        set() if shape.taken == BOTH else {hidden} if shape.taken else {own, hidden}
    )
    assert statuses.count(200) == shape.taken
    if shape.taken == NONE:
        assert closed, "the connection lives on: what follows could be smuggled"
        assert len(statuses) == 1, "one refusal, and nothing that came behind it is answered"
        assert statuses[0] in (400, 405, 411, 413, 415, 417, 501, 505)


def test_the_list() -> None:
    assert len(SHAPES) >= 200
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert sum(shape.taken == BOTH for shape in SHAPES) >= 20, (
        "strictness that refuses everything proves nothing"
    )


def test_no_traceback_was_logged(outcomes: tuple[dict[int, Outcome], set[int], str]) -> None:
    assert "Traceback" not in outcomes[2]
