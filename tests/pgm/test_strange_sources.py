"""A queue that listens to sources that behave strangely, or are started again: a real process, over UDP on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from multicast_kit import GROUP, LISTENING, QUEUE, Stranger, message, metric, rows, status, until

from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.srmp.codec.apdu import apdu_of
from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager

CONSTANTS = (
    "[pgm_constants]\nsessions_max = 1\nnak_rpt_ivl = 0.1\nnak_rdata_ivl = "
    "0.1\nnak_ncf_retries = 50\nnak_data_retries = 50\n"
)
"""Asked for often, and for seconds: the sources here answer between two calls of an API that others keep waiting."""


@pytest.fixture(scope="module")
def listening(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningQueueManager, Encapsulation]]:
    folder: Path = tmp_path_factory.mktemp("strange")
    config = folder / "constants.toml"
    config.write_text(CONSTANTS)
    pgm = f"udp:{kept_port()}"
    with RunningQueueManager(
        folder / "queue_manager", queues=[LISTENING], pgm=pgm, config=config
    ) as running:
        yield running, Encapsulation.parse(pgm)


def is_told(running: RunningQueueManager, bodies: list[bytes], *speaking: Stranger) -> bool:
    for each in speaking:
        each.speak()
    return [row["body"] for row in rows(running)] == bodies


def apdus(*bodies: bytes) -> list[bytes]:
    """Each a message of its own."""
    return [
        apdu_of(message(time.monotonic_ns() % 2**31 + number, body), GROUP)
        for number, body in enumerate(bodies)
    ]


def test_strange_sources(listening: tuple[RunningQueueManager, Encapsulation]) -> None:
    """One after the other, for they share a table of one source: a path of IPv6, a source that begins anew, one too many."""
    running, pgm = listening
    first = Stranger(pgm, path="2001:db8::1")
    first.send(
        apdus(b"0", b"lost", b"2"),
        drop=lambda packet: packet[4] == 0x04 and packet[16:20] == b"\0\0\0\1",
    )
    until(
        lambda: is_told(running, [b"0", b"2"], first),
        "what lies behind the loss is told, for its NAKs stop nobody",
    )
    first.close()

    again = Stranger(pgm, tsi=first.source.tsi)
    again.send(apdus(b"of the successor", b"and more"))
    told = [b"0", b"2", b"of the successor", b"and more"]
    until(
        lambda: is_told(running, told, again),
        "the successor is heard, and what it sent before it was known, too",
    )
    assert "reason=restarted" in running.stderr()

    another = Stranger(pgm)
    another.send(apdus(b"of one too many"))
    until(lambda: another.speak() or "pgm.source_refused" in running.stderr(), "a warning")
    assert running.stderr().count("pgm.source_refused") == 1
    refused = f'queue="{QUEUE}",what="session refused"'
    until(
        lambda: metric(running, "srmp_pgm_packets_total").get(refused, 0) >= 2,
        "each packet is counted",
    )
    assert [each["tsi"] for each in status(running)["multicast"]["sources"]] == [
        str(again.source.tsi)
    ]
    assert is_told(running, told)
    again.close()
    another.close()
