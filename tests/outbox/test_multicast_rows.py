"""Rows for a multicast group (INTERFACE.md section 4): express, and at most 64 KB as they are sent ([MC-MQSRM] 2.1.3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from outbox_kit import A, Desk

from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.wire.limits import APDU_SENT_MAX
from srmp_spark.srmp.codec.apdu import apdu_of
from srmp_spark.store.outbox.errors import BatchError

GROUP = MulticastAddress("234.1.1.1", 8001)
TO = "MULTICAST=234.1.1.1:8001"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "data")
    made.outbox.stages.multicast = True
    return made


@pytest.mark.parametrize(
    "spelled",
    [
        TO,
        "multicast=234.1.1.1:8001",
        "MSMQ:MULTICAST=234.1.1.1:8001",
        "DIRECT=MULTICAST=234.1.1.1:8001",
    ],
)
def test_a_row_without_a_delivery_goes_out_express(desk: Desk, spelled: str) -> None:
    desk.send(
        [{"body": b"x", "destination": spelled, "label": "l"}, {"body": b"y", "destination": A}]
    )
    (stored,) = desk.read(TO, "plain")
    assert (stored.message.durable, stored.message.stream, stored.message.body) == (
        False,
        None,
        b"x",
    )
    assert b"<to>MSMQ:MULTICAST=234.1.1.1:8001</to>" in apdu_of(stored.message, GROUP)
    assert b"<durable/>" not in apdu_of(stored.message, GROUP)
    assert len(desk.read(A)) == 1, "others are transactional as ever"


@pytest.mark.parametrize("delivery", ["transactional", "recoverable"])
def test_any_other_delivery_is_an_error(desk: Desk, delivery: str) -> None:
    rows = [
        {"body": b"x", "destination": A, "delivery": delivery},
        {"body": b"x", "destination": TO, "delivery": delivery},
    ]
    with pytest.raises(BatchError, match="row 1: a multicast message is express"):
        desk.stage(rows)


def longest(desk: Desk, **columns: Any) -> int:
    """The longest body that is taken."""
    low, high = 0, APDU_SENT_MAX
    while low < high:
        size = (low + high + 1) // 2
        try:
            desk.stage([{"body": bytes(size), "destination": TO, **columns}])
            low = size
        except BatchError as error:
            assert f"a multicast one at most {APDU_SENT_MAX}" in str(error)  # noqa: PT017  # half of the tries fail
            high = size - 1
    return low


@pytest.mark.parametrize(
    "columns",
    [{}, {"label": "&" * 249}, {"extension": bytes(40_000)}, {"response_queue": "http://h/msmq/q"}],
)
def test_the_limit_is_that_of_the_message_as_it_is_sent(
    desk: Desk, columns: dict[str, Any]
) -> None:
    size = longest(desk, **columns)
    desk.send([{"body": bytes(size), "destination": TO, **columns}])
    (stored,) = desk.read(TO, "plain")
    octets = len(apdu_of(stored.message, GROUP))
    assert octets <= APDU_SENT_MAX
    assert APDU_SENT_MAX - octets < 12, "no more room is kept than a longer identifier needs"
    with pytest.raises(BatchError, match="send it by HTTP, or in parts"):
        desk.stage([{"body": bytes(size + 1), "destination": TO, **columns}])


def test_other_rows_of_that_size_are_taken(desk: Desk) -> None:
    desk.send([{"body": bytes(100_000), "destination": A}])
    assert len(desk.read(A)) == 1
