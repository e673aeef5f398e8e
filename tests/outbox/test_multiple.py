"""One row, several queues: multiple-element format names ([MS-MQMQ] 2.1.7, [MC-MQSRM] 2.2.6.14 to 2.2.6.16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outbox_kit import A, B, Desk, bodies, table_of, write_stage

from srmp_spark.message import StreamId, StreamPosition
from srmp_spark.names import format_names
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.limits import NAMES_MAX
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.preparing.prepared import CommitResult

C = "http://c.example/msmq/private$/orders"
BOTH = f"DIRECT={A},DIRECT={B}"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


def row(body: str, destination: str, **columns: Any) -> dict[str, Any]:
    return {"body": body.encode(), "destination": destination, **columns}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (A, (A,)),
        (f"{A},{B}", (A, B)),
        (f"DIRECT={A} , direct=OS:h\\private$\\q", (f"DIRECT={A}", "direct=OS:h\\private$\\q")),
        ("http://h/msmq/private$/a,b", ("http://h/msmq/private$/a,b",)),
        (f"http://h/msmq/private$/a,b,{B}", ("http://h/msmq/private$/a,b", B)),
        (f"{A},MULTICAST=234.1.1.1:8001", (A, "MULTICAST=234.1.1.1:8001")),
    ],
)
def test_a_comma_separates_where_a_format_name_follows(text: str, names: tuple[str, ...]) -> None:
    assert format_names(text) == names


def test_a_row_for_two_queues_is_a_message_in_each(desk: Desk) -> None:
    assert desk.send([row("1", A), row("2", BOTH), row("3", B)]) == CommitResult(4, 0)
    assert bodies(desk.read(A)) == [b"1", b"2"]
    assert bodies(desk.read(B)) == [b"2", b"3"]
    alone, both = desk.read(A)
    assert alone.message.destination_list == ()
    assert both.message.destination_list == (A, B)
    assert (both.message.destination, desk.read(B)[0].message.destination) == (A, B)
    assert desk.read(B)[0].message.destination_list == (A, B)
    identifiers = {stored.message.uniquifier for queue in (A, B) for stored in desk.read(queue)}
    assert identifiers == {1, 2, 3, 4}, "each is a message of its own"


def test_the_envelope_names_all_destinations(desk: Desk) -> None:
    """2.2.6.14: names separated by white space; 3.1.7.2.4: each is followed by one."""
    desk.send(
        [
            row(
                "x",
                BOTH,
                response_queue=f"DIRECT={A},DIRECT=OS:h\\private$\\r",
                admin_queue=f"{B},{C}",
            )
        ]
    )
    (stored,) = desk.read(B)
    message = stored.message._replace(
        stream=StreamPosition(StreamId(stored.message.lineage, 1), 1, 0, True, A)
    )
    text = encode_envelope(message).decode()
    assert f"<to>{B}</to>" in text
    assert f"<DestinationMqf>{A} {B} </DestinationMqf>" in text
    assert f"<AdminMqf>{B} {C} </AdminMqf>" in text
    assert f"<ResponseMqf>{A} DIRECT=OS:h\\private$\\r </ResponseMqf>" in text
    assert f"<sendTo>{B}</sendTo>" in text, "a receipt has one address: the first"
    assert message.response_queue == f"DIRECT={A}"


def test_one_name_is_no_list(desk: Desk) -> None:
    desk.send([row("x", A, response_queue=B, admin_queue=C)])
    (stored,) = desk.read(A)
    message = stored.message
    assert (message.destination_list, message.response_list, message.admin_list) == ((), (), ())
    assert (message.response_queue, message.delivery_receipt_to) == (B, C)


def test_each_queue_gets_a_row_once(desk: Desk) -> None:
    desk.send([row("x", BOTH, key="k")])
    assert desk.send([row("x", BOTH, key="k")], batch="2") == CommitResult(0, 2)
    position = {"queue_manager": "g", "epoch": "e", "queue": "q", "sequence": 7}
    desk.send([row("y", BOTH, **position)], batch="3")
    assert desk.send([row("y", BOTH, **position)], batch="4") == CommitResult(0, 2)
    desk.send([row("z", BOTH)], batch="5")
    assert desk.send([row("z", BOTH), row("z", BOTH)], batch="5") == CommitResult(2, 2), (
        "two equal rows are two"
    )
    assert bodies(desk.read(A)) == bodies(desk.read(B)) == [b"x", b"y", b"z", b"z"]


def test_other_destinations_are_another_content(desk: Desk) -> None:
    """The message names them: with the same key it would be another one."""
    desk.send([row("x", BOTH, key="k")])
    with pytest.raises(BatchError, match="another content"):
        desk.send([row("x", f"{A},{C}", key="k")], batch="2")
    with pytest.raises(BatchError, match="another content"):
        desk.send([row("x", A, key="k")], batch="2")


def test_order_and_transactions_hold_in_each_queue(desk: Desk) -> None:
    found = [row(str(n), BOTH if n % 2 else A, t="t", x=9 - n) for n in range(6)]
    desk.send(found, order_by=["x"])
    assert bodies(desk.read(A)) == [b"5", b"4", b"3", b"2", b"1", b"0"]
    assert bodies(desk.read(B)) == [b"5", b"3", b"1"]


def test_transactions_begin_and_end_in_each_queue(desk: Desk) -> None:
    desk.send([row("1", BOTH, transaction="t"), row("2", BOTH, transaction="t")])
    for queue in (A, B):
        flags = [
            (stored.message.first_in_transaction, stored.message.last_in_transaction)
            for stored in desk.read(queue)
        ]
        assert flags == [(True, False), (False, True)]


def test_several_partitions_and_record_batches(desk: Desk) -> None:
    found = [row(str(n), BOTH if n % 3 == 0 else A) for n in range(50)]
    stages = []
    for partition, part in enumerate((found[:25], found[25:])):
        write_stage(
            desk.outbox.stages.folder / f"{partition}.arrow", table_of(part), rows=4 + partition
        )
        stages.append(
            desk.outbox.stages.add(
                "app", "1", partition, "0", f"{partition}.arrow", desk.at
            ).stage_id
        )
    assert desk.commit(stages) == CommitResult(50 + 17, 0)
    assert bodies(desk.read(A)) == [b"%d" % n for n in range(50)]
    assert bodies(desk.read(B)) == [b"%d" % n for n in range(0, 50, 3)]


def test_a_dictionary_of_destinations(desk: Desk) -> None:
    types = {"destination": pa.dictionary(pa.int32(), pa.string())}
    assert desk.send([row("1", BOTH), row("2", A)], types=types) == CommitResult(3, 0)


def test_a_stage_counts_its_rows(desk: Desk) -> None:
    """The sink compares this with what it sent."""
    name = "stage.arrow"
    write_stage(desk.outbox.stages.folder / name, table_of([row("1", BOTH), row("2", A)]))
    assert desk.outbox.stages.add("app", "1", 0, "0", name, desk.at).rows == 2


def test_an_error_names_the_row_of_the_stage(desk: Desk) -> None:
    desk.send([row("x", B, key="k")])
    with pytest.raises(
        BatchError, match=r"key 'k' \(partition 0 row 1\) was sent before with another content"
    ):
        desk.send([row("first", f"{A},{C}"), row("y", B, key="k")], batch="2")


def test_it_waits_and_dies_for_itself(desk: Desk) -> None:
    desk.send([row("x", BOTH)])
    assert desk.sender.drop(A, "stream", desk.at)
    desk.save()
    assert desk.read(A) == []
    assert bodies(desk.read(B)) == [b"x"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one queue twice": ({"destination": f"{A},DIRECT={A.replace('orders', 'ORDERS')}"}, r"row 0: destination names .* twice"),
    "multicast among them": ({"destination": f"{A},MULTICAST=234.1.1.1:8001"}, "row 0: .*multicast address alongside other"),
    "WS-RM among them": ({"destination": f"{A},wsrm:http://h/x"}, "service, wsrm:URL, alongside other"),
    "one without HTTP": ({"destination": f"{A},DIRECT=OS:h\\private$\\q"}, "not a destination"),
    "a public queue": ({"destination": f"{A},PUBLIC=caf195ea-615c-4264-ae08-11a4e60194c0"}, "not a destination"),
    "a blank in a name": ({"destination": f"{A},http://h/msmq/private$/a b"}, "white space separates"),
    "a journal": ({"destination": f"{A},{B};journal"}, "a journal is read only"),
    "too many": (
        {"destination": ",".join(f"http://h{n}/msmq/q" for n in range(NAMES_MAX + 1))},
        f"names {NAMES_MAX + 1} queues, NAMES_MAX is {NAMES_MAX}",
    ),
    "too long": ({"destination": ",".join(f"http://h{n}/msmq/{'x' * 120}" for n in range(80))}, "LIST_LENGTH_MAX|has at most"),
    "one too long": ({"destination": f"{A},http://h/msmq/{'x' * 1100}"}, "at most 1024 characters for each"),
    "an admin queue without HTTP": ({"admin_queue": f"{A},DIRECT=OS:h\\private$\\q"}, "admin_queue holds 'DIRECT.*no http"),
    "a response queue with a blank": ({"response_queue": f"{A},http://h/msmq/private$/a b"}, "response_queue.*white space"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_while_it_is_staged(desk: Desk, name: str) -> None:
    columns, message = BAD[name]
    with pytest.raises(BatchError, match=message) as refused:
        desk.stage([{**row("x", A), **columns}])
    assert refused.value.status == 400
