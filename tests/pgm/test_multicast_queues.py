"""Queue managers that multicast to each other ([MC-MQSRM] 2.1.2, 3.1.7.9), over UDP on loopback: real processes throughout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from deltalake import DeltaTable
from multicast_kit import (
    GROUP,
    LISTENING,
    QUEUE,
    Stranger,
    last,
    message,
    metric,
    outgoing,
    rows,
    send,
    status,
    until,
)

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.srmp.codec.apdu import apdu_of
from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager

TO = GROUP.format_name


class Three(NamedTuple):
    """Two that listen and one that sends."""

    first: RunningQueueManager
    second: RunningQueueManager
    sender: RunningQueueManager
    state: Path
    pgm: str


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("pgm")
    pgm = f"udp:{kept_port()}"
    fast = folder / "fast.toml"
    fast.write_text(
        "[pgm_constants]\ntxw_max_rte = 1_000_000\nnak_rpt_ivl = 0.2\nnak_rdata_ivl = "
        "0.3\nnak_data_retries = 1\n"
    )
    listening = {"queues": [LISTENING], "pgm": pgm, "config": fast}
    with (
        RunningQueueManager(
            folder / "first", state=folder / "state", state_interval=0.5, **listening
        ) as first,
        RunningQueueManager(folder / "second", **listening) as second,
        RunningQueueManager(folder / "sender", pgm=pgm, config=fast) as sender,
    ):
        yield Three(first, second, sender, folder / "state", pgm)


def bodies(count: int, size: int = 20) -> list[bytes]:
    return [b"%06d" % number * (size // 6 + 1) for number in range(count)]


def test_a_row_reaches_every_queue_that_listens(three: Three) -> None:
    sent = bodies(200) + bodies(5, 60_000)
    before = [last(three.first), last(three.second)]
    send(three.sender, [{"body": body, "destination": TO, "label": "price"} for body in sent])
    for running, after in zip(three[:2], before, strict=True):
        until(
            lambda running=running, after=after: last(running) == after + len(sent),
            "all messages came",
        )
        found = rows(running, after)
        assert [row["body"] for row in found] == sent, "in order"
        row = found[0]
        told = {
            name: row[name]
            for name in (
                "transport",
                "delivery",
                "label",
                "destination",
                "sender_name",
                "stream_id",
            )
        }
        assert told == {
            "transport": "pgm", "delivery": "express", "label": "price", "destination": TO, "sender_name": None,
            "stream_id": None,
        }  # fmt: skip
        assert row["peer"].startswith("127.0.0.1:")
        assert row["source_qm"] == three.sender.ready["queue_manager"]
    entry = until(
        lambda: (e := outgoing(three.sender, TO)) and not e["queued"] and e, "all have left"
    )
    assert entry["multicast"]["packets"]["odata"] >= len(sent)
    assert (entry["stream_id"], entry["awaiting_stream_receipt"]) == (None, 0), (
        "express: nobody answers"
    )


def test_status_and_metrics_tell_of_each_source(three: Three) -> None:
    def told() -> dict[str, Any] | None:
        """Return the source once all is told: the gateway tells its figures twice a second."""
        sources = status(three.first)["multicast"]["sources"]
        return sources[0] if sources and sources[0]["messages"] >= 205 else None

    source = until(told, "the source and its messages are told")
    assert (source["queue"], source["address"], source["source"]) == (
        QUEUE,
        str(GROUP),
        "127.0.0.1",
    )
    assert source["packets"] + source["repairs"] >= source["messages"]
    assert status(three.first)["multicast"]["pgm"] == three.pgm
    assert next(
        each["multicast"] for each in status(three.first)["queues"] if each["name"] == QUEUE
    ) == str(GROUP)
    expected = {"pgm": three.pgm, "interface": "127.0.0.1", "ttl": 1, "deaf": [], "sources": []}
    assert status(three.sender)["multicast"] == expected
    assert (
        metric(three.first, "srmp_messages_accepted_total")[f'queue="{QUEUE}",transport="pgm"']
        >= 205
    )
    assert metric(three.first, "srmp_pgm_packets_total")[f'queue="{QUEUE}",what="odata"'] >= 205
    assert (
        metric(three.first, "srmp_pgm_source_packets")[
            f'queue="{QUEUE}",source="127.0.0.1",what="messages"'
        ]
        >= 205
    )
    sent = until(
        lambda: status(three.sender) and metric(three.sender, "srmp_pgm_sent_packets_total"),
        "it has sent",
    )
    assert sent[f'destination="{TO}",what="odata"'] >= 205


def test_a_repeat_is_known_by_its_identifier(three: Three) -> None:
    """3.1.5.1.11, as over HTTP: two sessions multicast one message."""
    before = last(three.first)
    for number in (1, 1, 2):
        stranger = Stranger(Encapsulation.parse(three.pgm))
        stranger.send([apdu_of(message(number, b"once"), GROUP)])
        stranger.close()
    until(lambda: last(three.first) >= before + 2, "both came")
    assert [row["message_id"].rpartition("\\")[2] for row in rows(three.first, before)] == [
        "1",
        "2",
    ]
    assert metric(three.first, "srmp_duplicates_total")[f'kind="identifier",queue="{QUEUE}"'] >= 1


def losses(three: Three) -> list[dict[str, object]]:
    table = three.state / "pgm_loss"
    return (
        DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        if (table / "_delta_log").exists()
        else []
    )


def test_what_comes_and_is_not_kept_is_a_loss_that_is_told(three: Three) -> None:
    """No sender hears of it: the log, a metric and a row of ``pgm_loss`` do."""
    before = last(three.first)
    elsewhere = apdu_of(message(11), GROUP).replace(
        b"MULTICAST=239.192.77.1:", b"MULTICAST=239.192.77.9:"
    )
    stranger = Stranger(Encapsulation.parse(three.pgm))
    stranger.send([b"rubbish", apdu_of(message(10), GROUP), elsewhere])
    until(lambda: last(three.first) == before + 1, "the good one came")
    requests.post(
        f"{three.first.api}/v1/queues/private$%2Fprices/pause", timeout=30
    ).raise_for_status()
    stranger.send([apdu_of(message(12), GROUP)])
    tsi = str(stranger.source.tsi)
    found = until(
        lambda: (
            (mine := [each for each in losses(three) if each["tsi"] == tsi])
            and len(mine) == 3
            and mine
        ),
        "three rows",
    )
    requests.post(
        f"{three.first.api}/v1/queues/private$%2Fprices/resume", timeout=30
    ).raise_for_status()
    stranger.close()
    assert [(row["first"], row["last"], row["packets"], row["reason"]) for row in found] == [
        (0, 0, 1, "refused"), (2, 2, 1, "refused"), (3, 3, 1, "refused")
    ]  # fmt: skip
    assert [str(row["detail"]).split(" (")[0] for row in found] == [
        "400 malformed",
        "400 multicast",
        "503 paused",
    ]
    assert all(
        (row["queue"], row["address"], row["source"]) == (QUEUE, str(GROUP), "127.0.0.1")
        for row in found
    )
    assert last(three.first) == before + 1
    assert last(three.second) >= 1, "who is not paused has it"
    assert (
        metric(three.first, "srmp_pgm_lost_packets_total")[f'queue="{QUEUE}",reason="refused"'] >= 3
    )
    assert "pgm.lost queue=private$/prices" in three.first.stderr()


def test_what_nobody_repairs_is_a_loss_with_its_exact_range(three: Three) -> None:
    """The source is gone: three packets are asked for in vain, and what came behind them is told after that."""
    before = last(three.first)
    stranger = Stranger(Encapsulation.parse(three.pgm))
    left: list[bytes] = []

    def drop(packet: bytes) -> bool:
        is_data = packet[4] == 0x04
        left.extend([packet] if is_data else [])
        return is_data and int.from_bytes(packet[16:20], "big") in (2, 3, 4)

    stranger.send([apdu_of(message(100 + number), GROUP) for number in range(8)], drop=drop)
    tsi = str(stranger.source.tsi)
    found = until(
        lambda: [each for each in losses(three) if each["tsi"] == tsi], "a row of pgm_loss"
    )
    stranger.close()
    assert [(row["first"], row["last"], row["packets"], row["reason"]) for row in found] == [
        (2, 4, 3, "retries")
    ]
    until(lambda: last(three.first) == before + 5, "the others came")
    assert [row["message_id"].rpartition("\\")[2] for row in rows(three.first, before)] == [
        "100",
        "101",
        "105",
        "106",
        "107",
    ]
    assert (
        metric(three.first, "srmp_pgm_lost_packets_total")[f'queue="{QUEUE}",reason="retries"'] == 3
    )


def test_a_row_for_multicast_that_cannot_go_is_refused_as_a_whole(three: Three) -> None:
    before = last(three.second)
    for columns, says in (
        ({"delivery": "transactional"}, "a multicast message is express"),
        ({"body": bytes(65_000)}, "a multicast one at most 65535"),
        ({"destination": "MULTICAST=10.0.0.1:1"}, "is no multicast address"),
    ):
        with pytest.raises(ApiError, match=says):
            send(
                three.sender,
                [{"body": b"x", "destination": TO}, {"body": b"x", "destination": TO} | columns],
            )
    send(three.sender, [{"body": b"after all that", "destination": TO}])
    until(lambda: last(three.second) > before, "this one came")
    assert rows(three.second, before)[0]["body"] == b"after all that"


def test_a_sender_that_is_killed_goes_on_and_nothing_is_doubled(three: Three) -> None:
    """What had not left is still in the outbox; what had may leave again, under the identifier that receivers know."""
    before = last(three.first)
    sent = bodies(800, 900)
    send(three.sender, [{"body": body, "destination": TO} for body in sent])
    until(lambda: last(three.first) > before + 20, "some came")
    three.sender.kill9()
    three.sender.start()
    until(lambda: last(three.first) >= before + len(sent), "all came")
    for running in three[:2]:
        until(
            lambda running=running: (
                len({row["body"] for row in rows(running)} & set(sent)) == len(sent)
            ),
            "all came",
        )
    assert sorted(row["body"] for row in rows(three.first, before)) == sorted(sent), "each once"
