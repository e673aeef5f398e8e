"""What ``send --wait`` says of a service that has not acknowledged."""

from __future__ import annotations

from typing import Any

from srmp_spark.commands.send_unfinished import unfinished


def outgoing(**more: Any) -> dict[str, Any]:
    session = {"state": "open", "buffer_remaining": None, **more.pop("wsrm", {})}
    return {
        "destination": "wsrm:http://host/Orders.svc",
        "state": "Connected",
        "last_error": None,
        "wsrm": session,
        **more,
    }


def test_a_service_without_room_is_named() -> None:
    """[MS-WSRVCRM] 3.2: at 0 nothing leaves but questions."""
    said = unfinished("sent", outgoing(wsrm={"buffer_remaining": 0}))
    assert "BufferRemaining 0" in said
    assert "--wsrm-poll-interval" in said


def test_a_service_that_said_nothing_of_room_is_not() -> None:
    assert "BufferRemaining" not in unfinished("queued", outgoing())


def test_what_went_wrong_is_said_first_and_without_the_hints_of_msmq() -> None:
    said = unfinished("queued", outgoing(last_error="404 Not Found", wsrm={"buffer_remaining": 0}))
    assert "404 Not Found" in said
    assert "/msmq/" not in said


def test_a_missing_receipt_is_told_also_while_the_message_is_sent_again() -> None:
    """Between two attempts what had left counts as queued: no field of ``status`` says that it waits for a receipt."""
    stream = {
        "destination": "http://host/msmq/private$/t",
        "state": "Connected",
        "last_error": None,
        "stream_id": "G\\1",
    }
    for counts in (
        {"queued": 0, "awaiting_stream_receipt": 1},
        {"queued": 1, "awaiting_stream_receipt": 0},
    ):
        assert "no stream receipt came back" in unfinished("sent", {**stream, **counts})
    assert "no stream receipt" not in unfinished("sent", {**stream, "stream_id": None}), (
        "express messages have none"
    )
    assert "no stream receipt" not in unfinished("queued", stream)
