"""One keep-alive connection: what counts as an answer and what does not, byte by byte."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from srmp_spark.queue_manager.posting.http_answer import ANSWER_BODY_MAX, PeerAnswer
from srmp_spark.queue_manager.posting.http_exchange import Exchange
from srmp_spark.srmp.sending.outgoing_effects import Send


class Wire(asyncio.Transport):
    """A transport that only notes."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Owner:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def answered(self, send: Send, answer: PeerAnswer) -> None:
        self.told.append((send, answer.status, answer.reason, answer.retry_after))

    def on_connection_lost(self, unanswered: list[Send], why: str, *, silent: bool) -> None:
        self.told.append(("lost", unanswered, silent))


def opened(requests: int = 1) -> tuple[Exchange[Send], Owner, Wire]:
    owner, wire = Owner(), Wire()
    exchange = Exchange(owner)
    exchange.connection_made(wire)
    for n in range(requests):
        exchange.post(cast("Send", f"m{n}"), b"POST")
    return exchange, owner, wire


def test_answers_come_in_the_order_of_the_requests_in_whatever_pieces() -> None:
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" * 2
    for size in (1, 3, 7, len(text)):
        exchange, owner, wire = opened(2)
        for at in range(0, len(text), size):
            exchange.data_received(text[at : at + size])
        assert [each[:2] for each in owner.told] == [("m0", 200), ("m1", 200)]
        assert exchange.usable
        assert not wire.closed


def test_trouble_comes_with_the_peers_words_and_its_retry_after() -> None:
    exchange, owner, _ = opened()
    exchange.data_received(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nSrmp-Reason: "
        b"disk-full\r\nContent-Length: 0\r\n\r\n"
    )
    assert owner.told == [("m0", 503, "disk-full", 7.0)]


def test_a_retry_after_beyond_any_calendar_costs_the_message_nothing() -> None:
    exchange, owner, _ = opened()
    date = b"Sun, 99999999999999999999 Nov 2026 06:00:30 GMT"
    exchange.data_received(
        b"HTTP/1.1 503 Busy\r\nRetry-After: " + date + b"\r\nContent-Length: 0\r\n\r\n"
    )
    assert owner.told == [("m0", 503, "Busy", None)]


def test_an_answer_that_is_cut_off_is_none() -> None:
    exchange, owner, _ = opened()
    exchange.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
    exchange.connection_lost(None)
    assert owner.told == [("lost", ["m0"], False)]


def test_a_kept_connection_that_the_peer_closes_without_a_byte_is_silent() -> None:
    exchange, owner, _ = opened()
    exchange.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    exchange.post(cast("Send", "m1"), b"POST")
    exchange.connection_lost(ConnectionResetError())
    assert owner.told[1:] == [("lost", ["m1"], True)]
    first, owner, _ = opened()
    first.connection_lost(None)
    assert owner.told == [("lost", ["m0"], False)], "a connection that never served is trouble"


def test_close_after_the_answer_leaves_nothing_open() -> None:
    exchange, owner, wire = opened()
    exchange.data_received(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert owner.told == [("m0", 200, "", None), ("lost", [], True)]
    assert wire.closed
    assert not exchange.usable


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    exchange, owner, _ = opened()
    exchange.data_received(b"HTTP/1.1 200 OK\r\n\r\nfine")
    assert owner.told == []
    exchange.eof_received()
    assert owner.told[0][:2] == ("m0", 200)


@pytest.mark.parametrize(
    "text",
    [
        b"220 smtp.example ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * (3 * ANSWER_BODY_MAX),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * ANSWER_BODY_MAX)
        + b"x" * (3 * ANSWER_BODY_MAX),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (3 * ANSWER_BODY_MAX),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" * 20,
    ],
)
def test_what_is_no_answer_ends_the_connection(text: bytes) -> None:
    exchange, owner, wire = opened()
    exchange.data_received(text)
    assert owner.told == [("lost", ["m0"], False)]
    assert wire.closed


def test_a_peer_that_speaks_unasked_is_left() -> None:
    exchange, owner, wire = opened(0)
    exchange.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert owner.told == [("lost", [], False)]
    assert wire.closed
