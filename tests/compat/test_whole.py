"""The whole archive of each version goes on: in its own place, as a copy, restored from its Delta state; and Spark with it.

The tests of one start stand in their order: each looks at a part of its own, the last ones at the Delta state and at a second
start. ``make_whole.py`` tells what is in the archive.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import deltalake
import pytest
import whole_world as world
from whole_archive import ARCHIVES, Left

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.walking import shown
from srmp_spark.errors import ApiError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import ACCESS_RECEIVE
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.remote_host import parse_remote_host
from srmp_spark.signing_in.credentials import credentials
from srmp_spark.testing.foreign.receiving import final_receipt
from srmp_spark.testing.queue_manager import RunningQueueManager

TOLD = (
    "name",
    "transactional",
    "multicast",
    "first",
    "last",
    "received",
    "waiting",
    "paused",
    "epochs",
    "damaged",
)
"""What of a queue's entry stays as it was while nobody comes and goes."""
IN_STREAM = (
    "queue",
    "stream_id",
    "source_qm",
    "sequence_number",
    "last_acknowledged",
    "sender_identifier",
)
OF_OUTGOING = (
    "destination",
    "kind",
    "stream_id",
    "awaiting_final_stream_receipt",
    "last_acknowledged",
    "damaged",
)


@pytest.fixture(scope="module", autouse=True)
def _addresses() -> Iterator[None]:
    with world.addresses():
        yield


@pytest.fixture(scope="module", params=ARCHIVES)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    return Left(request.param, tmp_path_factory.mktemp("whole"), in_place=True)


@pytest.fixture(scope="module")
def running(left: Left) -> Iterator[RunningQueueManager]:
    """It goes on in its place; ``first_status`` of :class:`GroupsLeft` is what it said before any peer was there."""
    with left.serve() as queue_manager:
        left.first_status = world.client().status()
        with (
            left.foreign(),
            left.serve_remote(),
        ):  # soon: who is away is asked again after longer and longer pauses
            yield queue_manager


@pytest.fixture(scope="module", autouse=True)
def _going(running: RunningQueueManager) -> None:
    """Start it before the first test, whichever that is."""


def rows(queue: str, left: Left, after: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of the epoch that was."""
    found = world.rows_of(queue, left.expected["epoch"], after)
    return [] if found is None else found.to_pylist()


def last(queue: str) -> int:
    """Return the last sequence of a queue."""
    return int(world.client().queue(queue)["last"])


def grows(queue: str, count: int) -> None:
    """Wait until the queue has so many rows."""
    world.until(lambda: last(queue) >= count, f"{queue} has {count}, not {last(queue)}")


def test_queues_marks_streams_and_what_waits_are_as_they_were(
    left: Left, running: RunningQueueManager
) -> None:
    assert (running.guid, running.epoch) == (left.expected["queue_manager"], left.expected["epoch"])
    was, is_now = left.expected["status"], left.first_status

    def queues(status: dict[str, Any]) -> dict[str, Any]:
        return {
            each["name"]: {name: each[name] for name in TOLD}
            | {c["name"]: c["received"] for c in each["consumers"]}
            for each in status["queues"]
        }

    def some(status: dict[str, Any], what: str, names: tuple[str, ...]) -> list[Any]:
        return sorted(([each[name] for name in names] for each in status[what]), key=str)

    assert queues(is_now) == queues(was)
    assert some(is_now, "incoming_streams", IN_STREAM) == some(was, "incoming_streams", IN_STREAM)
    assert some(is_now, "outgoing", OF_OUTGOING) == some(was, "outgoing", OF_OUTGOING)
    assert {
        each["destination"]: each["queued"] + each["awaiting_stream_receipt"]
        for each in is_now["outgoing"]
    } == {
        each["destination"]: each["queued"] + each["awaiting_stream_receipt"]
        for each in was["outgoing"]
    }
    session = ("sequence", "queue", "state", "acknowledged", "last_number", "peer", "created_at")
    assert some(is_now, "incoming_sequences", session) == some(was, "incoming_sequences", session)
    subscription = (
        "host",
        "queue",
        "mode",
        "to",
        "pending",
        "doubtful",
        "taken_in_doubt",
        "configured",
        "removing",
    )
    assert some(is_now, "subscriptions", subscription) == some(was, "subscriptions", subscription)
    journal = world.client().queue(f"{world.ORDERS};journal")
    assert {name: journal[name] for name in TOLD} == {
        name: left.expected["journal"][name] for name in TOLD
    }
    consumers = {
        c["name"]: c
        for each in is_now["queues"]
        if each["name"] == world.ORDERS
        for c in each["consumers"]
    }
    assert consumers["audit"]["holder"] == "an auditor", "who has some time to renew its lease"
    held = {each["destination"] for each in is_now["outgoing"] if each["state"] == "OnHold"}
    assert held == {world.PEER + "held"}, "what was paused, and nothing else"


def test_every_row_has_the_same_bytes(left: Left, running: RunningQueueManager) -> None:
    for queue, was in left.rows().items():
        found = world.rows_of(queue, running.epoch)
        assert found is not None, queue
        assert found.slice(0, was.num_rows).select(was.column_names).cast(was.schema).equals(was), (
            queue
        )


def test_marks_are_sets_as_they_were(left: Left) -> None:
    here = world.client()
    taken = here.register(world.ORDERS, "default", holder="the test")
    assert (taken.received, taken.ahead) == (2095, world.AHEAD)
    assert (
        here.received(world.ORDERS, "default", epoch=taken.epoch, to=2100, holder="the test")
        == 2103
    )
    here.release(world.ORDERS, "default", holder="the test")
    late = here.register(world.ORDERS, "from-latest", holder="the test")
    assert (late.received, late.ahead) == (0, ())


def test_receipts_that_were_owed_are_sent_and_streams_go_on(left: Left) -> None:
    """The next position makes a row, a repeat and what stands behind a gap make none."""
    queue_was = left.rows()[world.PAYMENTS].num_rows

    def sent(source: int, current: int, rows: int, **values: Any) -> None:
        before = last(world.PAYMENTS)
        assert world.send(world.in_stream(source, current, **values)).status == 200
        assert last(world.PAYMENTS) == before + rows, (source, current)

    with world.Receipts() as receipts:
        for source, ordinal in ((7, 3), (8, 2), (9, 6), (40, 3)):
            world.until(
                lambda s=source, o=ordinal: receipts.last_ordinal(s) == o,
                f"the receipt of stream {source}",
            )
        asks = {
            f"uuid:{100 + number}@{world.sender(9)}": kind
            for number, kind in ((1, "positive"), (2, "positive"), (3, "negative"))
        }
        ends = asks | {f"uuid:1@{world.sender(23)}": "negative"}
        world.until(
            lambda: len(receipts.decided()) >= len(ends), f"decisions: {receipts.decided()}"
        )
        assert receipts.decided() == ends
        sent(1, 5, 0)
        sent(1, 6, 1)
        sent(2, 3, 1, ordinal=2)
        sent(3, 5, 0)
        sent(3, 4, 1)
        sent(3, 5, 1)
        sent(4, 3, 1)  # the gap before it was accepted
        sent(4, 2, 0)
        sent(5, 3, 0)
        sent(5, 5, 1)
        sent(6, 2, 0)
        sent(6, 4, 1)
        sent(7, 4, 1)
        for source, ordinal in ((1, 6), (3, 5), (4, 3), (5, 5), (6, 4), (7, 4)):
            world.until(
                lambda s=source, o=ordinal: receipts.last_ordinal(s) == o,
                f"the receipt of stream {source}",
            )
        world.until(
            lambda: receipts.last_ordinal(2, 2) == 3,
            "the receipt of the stream that was begun anew",
        )
        new = rows(world.PAYMENTS, left, queue_was)
        assert Counter(each["label"] for each in new) == Counter(
            ["1/106", "2/203", "3/104", "3/105", "4/103", "5/105", "6/104", "7/104"]
        )
        here = world.client()
        epoch = here.register(world.ASKS, "default", holder="the test").epoch
        here.received(world.ASKS, "default", epoch=epoch, to=5, holder="the test")
        here.release(world.ASKS, "default", holder="the test")
        here.purge(world.ASKS)
        here.purge(world.REPORTS)
        ends |= {
            f"uuid:{100 + number}@{world.sender(9)}": kind
            for number, kind in ((4, "positive"), (5, "positive"), (6, "negative"))
        }
        ends |= {f"uuid:1@{world.sender(24)}": "negative"}
        world.until(
            lambda: len(receipts.decided()) >= len(ends), "decisions of now about messages of then"
        )
        assert receipts.decided() == ends


def test_identifiers_writers_and_redirections_are_known(left: Left) -> None:
    """A regular message that comes again makes no row; who may write is as it was."""
    before = last(world.ORDERS)
    for number in range(1, 6):
        assert world.send(world.message(world.ORDERS, 20, number)).status == 200
    assert last(world.ORDERS) == before
    assert world.send(world.message(world.ORDERS, 20, 6)).status == 200
    assert last(world.ORDERS) == before + 1
    assert world.send(world.message(world.WRITERS, 21, 2)).status == 403
    token = {"Authorization": f"Bearer {world.READER}"}
    assert world.send(world.message(world.WRITERS, 21, 1), token).status == 200
    assert world.send(world.message(world.WRITERS, 21, 2), token).status == 200
    assert last(world.WRITERS) == 2
    reports = last(world.REPORTS)
    assert world.send(world.message("private$/old-orders", 22, 2)).status == 200
    assert last(world.REPORTS) == reports + 1
    assert world.client(world.READER).range(world.ORDERS).end == before + 1
    with pytest.raises(ApiError, match="admin"):
        world.client(world.READER).purge(world.ORDERS)
    here = world.client()
    again = here.send("private$/again", [{"label": "it goes on counting"}])
    assert again[0]["state"] == "acknowledged"
    assert last("private$/again") == 3
    assert world.send(world.message("private$/paused", 25, 1)).status == 503
    here.send(world.LEDGER, [{"label": "our own stream goes on"}])
    (entry,) = rows(world.LEDGER, left, left.rows()[world.LEDGER].num_rows)
    assert entry["stream_sequence"] == 4


def test_reliable_sessions_go_on(left: Left) -> None:
    before = last(world.SESSIONS)
    open_, gap, address, offer, over = (
        left.session(name) for name in ("open", "gap", "address", "offer", "over")
    )
    assert open_.told(open_.number(3))[0] == 3
    assert open_.told(open_.number(4))[0] == 4
    gap.say(gap.number(2))
    assert gap.told(gap.number(3))[0] == 3
    with left.callbacks() as came:
        address.say(address.number(3))
        content, answer = world.until(lambda: came, "an acknowledgement at the address")[-1]
        assert answer.acknowledgements[0].ranges == ((1, 3),)
        assert re.search(rb"<(\w+):Customer[ >][^<]*4711</\1:Customer>", content), content
    status, _ = offer.say(offer.number(2))
    assert status == 200
    status, fault = over.fault(over.number(1))
    assert (status, fault.subcode.rpartition("}")[2]) == (400, "SequenceTerminated")
    new = rows(world.SESSIONS, left, before)
    numbers = Counter((each["wsrm_sequence"], each["wsrm_number"]) for each in new)
    assert numbers == Counter(
        [
            (open_.identifier, 4),
            (gap.identifier, 2),
            (gap.identifier, 3),
            (address.identifier, 3),
            (offer.identifier, 2),
        ]
    )
    for each in (open_, gap, address, offer, over):
        each.close()


def test_what_waited_leaves_once_and_in_order(left: Left) -> None:
    """To the destination of then, which has in its record what it took: streams in the middle, in doubt, new, forwarded."""
    here = world.client()
    waits = {
        "stream-a": [*(f"a {n}" for n in range(5)), "keyed", *(f"a {n}" for n in range(5, 9))],
        "plain": [f"plain {n}" for n in range(5)], "stream-p": ["p 1", "p 2", "p 3"],
        "finals": ["final 0", "final 1", "final 2"],
        "stream-b": [*(f"b {n}" for n in range(4)), "b key"], "many-1": ["many"], "many-2": ["many"],
        "stream-t": ["t 0", "t 1"], "far-stream": [f"body {n} of 40" for n in (101, 102, 103)],
        "far": [f"body {n} of 40" for n in (201, 202)],
    }  # fmt: skip
    with left.peer() as peer, left.service() as service:
        world.until(
            lambda: sum(map(len, peer.queues.values())) >= sum(map(len, waits.values())),
            "all have come",
        )
        world.until(lambda: len(service.delivered) == 7, "the service has all")
        assert service.delivered == [b"<n>%d</n>" % n for n in range(1, 8)]
        assert service.wrong == []
        assert "private$/held" not in peer.queues
        here.decide("resume", world.PEER + "held")
        assert OutboxClient(f"http://{world.API}", world.TOKEN).commit(
            "staged", "1", [left.expected["staged"]]
        )[:2] == (2, 0)
        waits |= {"held": ["held 0", "held 1"], "stream-s": ["s 0", "s 1"]}
        world.until(
            lambda: sum(map(len, peer.queues.values())) >= sum(map(len, waits.values())),
            "these two as well",
        )
        for message, decision in zip(
            peer.queues["private$/finals"], ("positive", "positive", "negative"), strict=True
        ):
            peer.receipts.add(final_receipt(message, decision))
        world.until(_nothing_waits, "all is acknowledged")
        verdict = peer.verdict(
            {
                f"private$/{name}": [each.encode() for each in bodies]
                for name, bodies in waits.items()
            }
        )
        assert verdict.ok, verdict.complaint()


def _nothing_waits() -> bool:
    names = ("queued", "awaiting_stream_receipt", "awaiting_final_stream_receipt", "in_doubt")
    return not any(each[name] for each in world.client().status()["outgoing"] for name in names)


def test_batches_keys_and_positions_are_known(left: Left) -> None:
    """The batch of then that runs again, a key in another batch, a position in another one."""
    assert world.commit("app", "1", world.first_batch()) == (0, 9)
    assert world.commit("app", "9", world.rows_to("stream-a", ["keyed"], key="order 1")) == (0, 1)
    assert world.commit(
        "app", "9", world.rows_to("stream-b", ["b key"], key="b 1", label="größer")
    ) == (0, 1)
    assert world.commit("positions", "9", world.placed()) == (0, 3)
    with pytest.raises(ApiError) as caught:
        world.commit("app", "10", world.rows_to("stream-a", ["another content"], key="order 1"))
    assert caught.value.status == 409
    assert _nothing_waits()


def test_dead_letters_become_rows_when_their_queue_takes_them(left: Left) -> None:
    assert last(world.DEAD_LATER) == 0
    world.client().resume(world.DEAD_LATER)
    grows(world.DEAD_LATER, 2)
    grows(world.DEAD, 4)
    assert [each["body"] for each in rows(world.DEAD_LATER, left)] == [b"refuse 1", b"refuse 2"]
    found = rows(world.DEAD, left)
    assert [each["body"] for each in found] == [b"refuse 1", b"refuse 2", b"too late", b"final 2"]
    assert found[2]["message_id"], "with the identifier that it had"


def test_subscriptions_go_on(left: Left) -> None:
    """A copy copies what is new, a move takes what is new, and what was in doubt is a row once."""
    for queue in (world.STOCK, world.TASKS, world.MISSING):
        grows(queue, 5)
    world.until(
        lambda: not any(each["pending"] for each in world.client().status()["subscriptions"]),
        "nothing is pending",
    )
    remote = world.remote_client()
    world.until(lambda: remote.queue("private$/tasks")["waiting"] == 0, "they are removed there")
    assert remote.queue("private$/stock")["waiting"] == 5
    assert [each["label"] for each in rows(world.STOCK, left, 4)] == ["stock after"]
    assert [each["label"] for each in rows(world.TASKS, left, 3)] == [
        "task after 0",
        "task after 1",
    ]
    assert sorted(each["body"] for each in rows(world.MISSING, left)) == [
        b"body %d" % n for n in range(1, 6)
    ]


def test_remote_readers_find_what_was_locked_and_what_was_moved(left: Left) -> None:
    with RemoteMachine.connect(*_rpc()) as machine:
        queue = machine.open(queue_format_for(world.HERE, world.RETRY), ACCESS_RECEIVE)
        request, answer = queue.start(Action.RECEIVE)
        found = shown(answer).packet
        assert (found.properties.label, found.trailers.subqueue.move_counter) == ("late 4", 1)
        queue.end(request)
    assert world.client().queue(world.RETRY)["waiting"] == 0


def test_an_account_of_then_signs_in() -> None:
    """A password of the accounts file, at the level that encrypts; a wrong one is refused."""
    host = parse_remote_host("test", world.RPC)
    for password, is_right in ((world.PASSWORD, True), ("another one", False)):
        found = credentials(
            "test",
            host,
            level="privacy",
            protocol=None,
            user="clerk",
            password=password,
            domain=None,
        )
        with contextlib.ExitStack() as stack:
            if not is_right:
                stack.enter_context(pytest.raises((RemoteReadError, RemoteLostError)))
            machine = stack.enter_context(RemoteMachine.connect(*_rpc(), found.settings(host)))
            queue = machine.open(queue_format_for(world.HERE, world.LEDGER))
            assert [each.packet.properties.label for each in itertools.islice(queue.walk(), 1)] == [
                "entry 0"
            ]


def _rpc() -> tuple[str, int]:
    host, _, port = world.RPC.partition(":")
    return host, int(port)


def test_multicast_is_heard_and_sent(left: Left) -> None:
    """A new session of the source of then; what was lost then is still told."""
    before = last(world.PRICES)
    world.client().send_away([{"destination": f"MULTICAST={world.GROUP}", "body_base64": "bm93"}])
    grows(world.PRICES, before + 1)
    assert rows(world.PRICES, left, before)[0]["body"] == b"now"


@pytest.mark.spark
def test_checkpoints_go_on(left: Left, running: RunningQueueManager, jvm: dict[str, str]) -> None:
    """Each query delivers what it had not, its planned batch first, and marks what it has read and nothing else. The job writes
    each row once into its table.
    """
    in_table = (world.SPARK_A, world.LEDGER)
    new_a, new_b = (
        [[world.SPARK_A, n] for n in (13, 14, 15)],
        [[world.SPARK_B, n] for n in (6, 7, 8)],
    )
    assert left.run_spark(jvm, "spark_queries.py", str(left.folder / "spark"), "again") == {
        "ingested": sum(map(last, in_table)) - left.expected["spark"]["ingested"],
        "earliest": new_a + new_b, "unreceived": new_b, "failed": [[world.SPARK_A, n] for n in range(6, 16)],
        "peek": new_a + new_b, "latest": [[world.LATEST, n] for n in (9, 10, 11)],
        "unplanned": [],  # it had planned nothing: it begins at what is the end now
    }  # fmt: skip

    def marks(queue: str, consumer: str) -> tuple[int, tuple[tuple[int, int], ...]]:
        found = world.client().register(queue, consumer, holder="the test")
        return found.received, found.ahead

    assert marks(world.SPARK_A, "q-earliest") == marks(world.SPARK_A, "q-failed") == (15, ())
    assert marks(world.SPARK_B, "q-earliest") == marks(world.SPARK_B, "default") == (8, ())
    assert marks(world.SPARK_A, "default") == (0, ()), "a query that peeks marks nothing"
    assert marks(world.LATEST, "q-latest") == (0, ((7, 11),)), (
        "what came before it began was read by nobody"
    )
    assert marks(world.UNPLANNED, "q-unplanned") == (0, ())
    table = deltalake.DeltaTable(left.folder / "spark" / "table").to_pyarrow_table(
        columns=["epoch", "queue", "sequence"]
    )
    assert Counter(tuple(row.values()) for row in table.to_pylist()) == Counter(
        (running.epoch, queue, n) for queue in in_table for n in range(1, last(queue) + 1)
    )


def test_the_delta_state_goes_on(left: Left, running: RunningQueueManager) -> None:
    """Each row once, those of then too; dead letters, journal and what waits are those of then and what became of it."""
    here = world.client()
    world.until(
        lambda: here.status()["state"]["lag_seconds"] == 0, "the Delta state has everything"
    )

    def table(name: str, *columns: str) -> list[dict[str, Any]]:
        found = deltalake.DeltaTable(left.folder / "state" / name).to_pyarrow_table(
            columns=list(columns) or None
        )
        return found.to_pylist()  # type: ignore[no-any-return]

    def published() -> Counter[tuple[str, int]]:
        return Counter(
            (each["queue"], each["sequence"]) for each in table("inbox", "queue", "sequence")
        )

    last_ones = {(each["name"], each["last"]) for each in here.queues() if each["last"]}
    world.until(lambda: last_ones <= set(published()), "the last row of each queue")
    assert set(published().values()) == {1}
    for queue, was in left.rows().items():
        assert {(queue, sequence) for sequence in was["sequence"].to_pylist()} <= set(
            published()
        ), queue
    world.until(lambda: not table("outgoing_queue"), "nothing waits any more")
    letters = Counter(
        (each["body"], each["target"]) for each in table("dead_letter_queue", "body", "target")
    )
    before = Counter(
        (each["body"].encode(), each["target"]) for each in left.expected["dead_letter_queue"]
    )
    assert letters == before + Counter([(b"final 2", world.DEAD)])
    journal = Counter(each["body"] for each in table("journal_queue", "body"))
    assert journal == Counter(each["body"].encode() for each in left.expected["journal_queue"])
    (loss,) = table("pgm_loss", "packets", "reason")
    assert (loss["packets"], loss["reason"]) == (1, "retries")
    assert running.stderr().count("Traceback") == 0


def test_a_second_start_finds_the_same(left: Left, running: RunningQueueManager) -> None:
    def told() -> dict[str, Any]:
        status = world.client().status()
        queues = {each["name"]: {name: each[name] for name in TOLD} for each in status["queues"]}
        streams = sorted(
            ([each[name] for name in IN_STREAM] for each in status["incoming_streams"]), key=str
        )
        outgoing = sorted(
            ([each[name] for name in OF_OUTGOING] for each in status["outgoing"]), key=str
        )
        return {"queues": queues, "streams": streams, "outgoing": outgoing}

    was = told()
    all_rows = {queue: world.rows_of(queue, running.epoch) for queue in was["queues"]}
    assert running.stop() == 0
    running.restart()
    assert running.epoch == left.expected["epoch"]
    assert told() == was
    for queue, found in all_rows.items():
        again = world.rows_of(queue, running.epoch)
        assert again == found or again.equals(found), queue
    assert running.stderr().count("Traceback") == 0
