"""The figures of SECURITY.md about what is sent are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from srmp_spark.queue_manager.api import stage_turns
from srmp_spark.queue_manager.posting import http_exchange, lookups
from srmp_spark.queue_manager.posting.http_answer import ANSWER_MAX
from srmp_spark.queue_manager.receipts import receipts_sender
from srmp_spark.queue_manager.sender import forwarder
from srmp_spark.queue_manager.sender.http import connections, places
from srmp_spark.queue_manager.sender.reliable import reliable_sessions
from srmp_spark.queue_manager.sender.staging import stage_reader, stage_readers
from srmp_spark.srmp.forward import forward_room, forwarding
from srmp_spark.srmp.receiving import stream_room
from srmp_spark.srmp.sending import outgoing_room
from srmp_spark.store.outbox import limits

PAGE = (Path(__file__).resolve().parents[2] / "SECURITY.md").read_text()
MIB = 1024 * 1024


def cells(name: str) -> list[str]:
    """The cells of the row of limits that begins with ``name``, without the name."""
    _, _, rest = PAGE.partition("## What an unauthenticated client may cost")
    (row,) = (line for line in rest.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in row.strip("| ").split(" | ")][1:]


def test_incoming_streams() -> None:
    count, *_ = cells("incoming streams")
    of_one = stream_room.STREAMS_MAX // stream_room.HOLDER_SHARE
    assert count == f"{stream_room.STREAMS_MAX:,} streams, {of_one:,} that one sender begins"


def test_forwarding() -> None:
    count, hops, memory, _ = cells("forwarding")
    assert f"{outgoing_room.FORWARD_RESERVE:,} places of their own" in count
    assert count.startswith(f"{forward_room.FORWARD_DESTINATIONS_MAX:,} destinations")
    assert f"of the {outgoing_room.DESTINATIONS_MAX:,} outgoing queues" in count
    assert f"{forwarding.HOPS_MAX} forwarders" in hops
    assert f"{forwarder.ROWS_MAX:,} rows or {forwarder.BYTES_MAX // MIB} MiB" in memory


def test_answers_of_destinations() -> None:
    count, deadlines, memory, _ = cells("answers of destinations")
    assert (places.SHARE, connections.TROUBLED_MAX * 4, reliable_sessions.HOST_SHARE) == (
        4,
        connections.CONNECTIONS_MAX,
        4,
    )
    of_connections = (
        f"{connections.CONNECTIONS_MAX:,} (a quarter for one address or host "
        "name, a quarter for peers in trouble)"
    )
    assert (
        count == f"{of_connections}; {reliable_sessions.SESSIONS_MAX} reliable sessions (a "
        "quarter for one host)"
    )
    connect, silent = (
        f"connect {http_exchange.CONNECT_SECONDS:.0f} s",
        f"{http_exchange.ANSWER_SECONDS:.0f} s without a byte",
    )
    assert deadlines.startswith(
        f"{connect}, {silent} that moves, {http_exchange.RATE_MIN // 1024} KiB/s at least, "
    )
    assert f"look-up of a name {lookups.LOOKUP_SECONDS:.0f} s" in deadlines
    assert f"a request older than {places.SLOW_SECONDS:.0f} s makes way" in deadlines
    assert f"an answer {ANSWER_MAX // 1024} KiB;" in memory
    assert outgoing_room.TOKEN_MAX * 4 == outgoing_room.DESTINATIONS_MAX
    assert f"messages: {outgoing_room.DESTINATIONS_MAX:,} (a quarter for one token)" in memory
    assert (
        f"forwarded ones {forward_room.FORWARD_DESTINATIONS_MAX:,} (a quarter for one sender)"
        in memory
    )
    assert f"leaves {limits.DISK_RESERVE_BYTES // MIB} MiB of the disk" in memory


def test_answers_to_receipts() -> None:
    count, deadlines, memory, _ = cells("answers to receipts")
    assert count == f"{receipts_sender.POSTS_MAX}, {receipts_sender.HOST_POSTS_MAX} to one host"
    assert (
        deadlines == f"connect {http_exchange.CONNECT_SECONDS:.0f} s, answer "
        f"{http_exchange.ANSWER_SECONDS:.0f} s"
    )
    rates = receipts_sender.HOST_RECEIPTS_PER_SECOND, receipts_sender.OWN_SENDER_RECEIPTS_PER_SECOND
    assert memory.startswith(
        "{:.0f} a second to one host ({:.0f} to the sender itself)".format(*rates)
    )
    assert f"{receipts_sender.OWED_MAX:,} delivery receipts" in memory


def test_stages() -> None:
    count, deadlines, memory, _ = cells("rows of a sink")
    assert (
        f"{stage_turns.STAGES_AT_ONCE} at once, {stage_turns.STAGES_OF_TOKEN_MAX} of one token"
        in count
    )
    assert f"{stage_readers.READ_SECONDS_MAX:.0f} s to be read" in deadlines
    assert stage_readers.TRIES == 2, "tried twice"
    sizes = (
        limits.STAGE_BYTES_MAX // 1024**3,
        limits.RECORD_BATCH_BYTES_MAX // MIB,
        stage_reader.MEMORY_BYTES_MAX // 1024**3,
    )
    assert (
        "{} GiB on disk, a record batch {} MiB unpacked; {} GiB for the process".format(*sizes)
        == memory
    )


def test_a_row_that_is_gone_is_noticed() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        cells("carrier pigeons")
