"""What is accepted and stored is no unreadable row at the next start, however long its names are."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import hypothesis.strategies as st
from hypothesis import given, settings
from test_marks_and_queues import rig

from srmp_spark.canonical_url import HOST_LABEL_LENGTH_MAX, HOST_LENGTH_MAX, canonical_destination
from srmp_spark.errors import ConfigurationError
from srmp_spark.message import Arrival
from srmp_spark.names import CONSUMER_NAME_LENGTH_MAX, QUEUE_NAME_LENGTH_MAX
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.limits import ENVELOPE_MAX, UNSIGNED_LONG_MAX
from srmp_spark.store.tables import state
from srmp_spark.store.unreadable_rows import NAME_LENGTH_MAX
from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream, post

GUID = "bbbbbbbb-0000-4000-8000-00000000000f"
HOST = ".".join(["h" * HOST_LABEL_LENGTH_MAX] * 4)[:HOST_LENGTH_MAX]
LOCAL = "private$/" + "𐍈" * QUEUE_NAME_LENGTH_MAX
PERCENT = "private$/" + "%25" * QUEUE_NAME_LENGTH_MAX
TO = [
    f"http://localhost/msmq/{quote(LOCAL)}",
    f"http://{HOST}:65535/msmq/{PERCENT}",
    f"http://{HOST}:65535/msmq/private$/q{'%20' * 15_000}",
    f"http://{HOST}:65535/msmq/{' ' * 40_000}q",
]
RECEIPTS_TO = f"http://{HOST}:65535/msmq/{PERCENT}"


def accepted(manager: QueueManager, number: int, to: str) -> asyncio.Future[int]:
    """The first message of a stream, which asks for every receipt that there is; the status it is answered with."""
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    message = ForeignMessage(
        to=to, lineage=GUID, uniquifier=UNSIGNED_LONG_MAX - number, label="l" * 200, sent_at=1_790_000_000, durable=True,
        dead_letter="localhost" in to, commitment_receipt_to=RECEIPTS_TO,
        stream=ForeignStream(guid=GUID, ordinal=UNSIGNED_LONG_MAX - number, current=1, previous=0, receipts_to=RECEIPTS_TO),
    )  # fmt: skip
    written = post(message)
    manager.acceptor.take(
        decode(written.content_type.encode(), written.content),
        Arrival(
            manager.clock.utc(),
            "http",
            "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff%interface0000]:65535",
        ),
        written.content,
        0,
        SimpleNamespace(
            read_at=time.perf_counter(),
            acknowledge=lambda ok: answered.set_result(200),
            refuse=lambda status, *_: answered.set_result(status),
        ),
    )
    return answered


def test_the_longest_names_that_are_accepted_are_read_at_the_next_start(tmp_path: Path) -> None:
    async def test(manager: QueueManager) -> None:
        await manager.queues.create(LOCAL, transactional=True)
        assert await asyncio.gather(*(accepted(manager, n, to) for n, to in enumerate(TO))) == [
            200
        ] * len(TO)
        queue = manager.catalogue.find(LOCAL)
        name = "𐍈" * CONSUMER_NAME_LENGTH_MAX
        await manager.leases.register(queue, name, "me", 1, asyncio.Event())
        await manager.leases.received(queue, queue.span(None), name, "me", 1, None)

    async def again(manager: QueueManager) -> None:
        check(manager, "undecided")
        found = state.load(manager.directory.writer)
        assert [(each.sequence_number, each.guid) for each in found.streams] == [(1, GUID)] * len(
            TO
        )
        assert {len(each.queue) for each in found.streams if "://" in each.queue} >= {
            len(TO[1]),
            len(TO[2]),
        }
        await manager.queues.purge(LOCAL)

    async def decided(manager: QueueManager) -> None:
        check(manager, "decided_receipts", "decisions")

    def check(manager: QueueManager, *tables: str) -> None:
        assert manager.set_aside == []
        assert any(
            manager.directory.writer.execute(f"SELECT 1 FROM {each}").fetchone() for each in tables
        )

    options = {"store_and_forward": "true", "allow_url": [f"http://{HOST}:65535"]}
    rig(tmp_path / "d", test, **options)
    rig(tmp_path / "d", again, **options)
    rig(tmp_path / "d", decided, **options)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["a", "%25", "%20", " ", "%3f", "é", "İ", "𐍈", "%f0%90%8d%88", "./"]), st.integers(1, ENVELOPE_MAX),
    st.sampled_from(["", "q", "private$/q"]), st.booleans(),
)  # fmt: skip
def test_no_destination_of_an_envelope_has_a_longer_name(
    sign: str, count: int, name: str, is_before: bool
) -> None:
    many = sign * min(count, (ENVELOPE_MAX - 600) // len(sign.encode()))
    path = many + name if is_before else name + many
    try:
        canonical = canonical_destination(f"http://{HOST}:65535/msmq/{path}")
    except ConfigurationError:
        return
    assert len(canonical) <= NAME_LENGTH_MAX
