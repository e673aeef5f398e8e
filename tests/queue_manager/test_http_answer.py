"""What a peer answers to a POST, read byte by byte: for receipts and for messages alike."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from srmp_spark.queue_manager.posting.http_answer import (
    ANSWER_HEAD_MAX,
    ANSWER_MAX,
    INTERIM_ANSWERS_MAX,
    REASON_MAX,
    AnswerParser,
    MalformedAnswerError,
    PeerAnswer,
    retry_after_of,
)

NOW = datetime(2026, 11, 22, 6, 0, 0, tzinfo=timezone.utc)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class Read:
    """A connection whose answers are taken as soon as they are complete."""

    def __init__(self) -> None:
        self.parser = AnswerParser(self._complete)
        self.answers: list[PeerAnswer] = []
        self.kept: list[bool] = []

    def _complete(self) -> None:
        self.kept.append(self.parser.keeps_alive)
        self.answers.append(self.parser.take())

    def feed(self, *pieces: bytes) -> Read:
        for piece in pieces:
            self.parser.feed(piece)
        return self


def test_one_answer_after_the_other_and_nothing_of_the_first_is_in_the_second() -> None:
    text = (
        b"HTTP/1.1 503 Busy\r\nSrmp-Reason: disk-full\r\nRetry-After: "
        b"7\r\nContent-Length: 2\r\n\r\nno"
        + INTERIM
        + b"HTTP/1.1 500 Worse\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    for size in (1, 3, 7, len(text)):
        read = Read().feed(*(text[at : at + size] for at in range(0, len(text), size)))
        assert read.answers == [PeerAnswer(503, "disk-full", 7.0), PeerAnswer(500, "Worse", None)]
        assert read.kept == [True, False]
        assert read.parser.got == 0


def test_a_200_needs_no_words_and_others_are_printable_and_short() -> None:
    assert Read().feed(b"HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n").answers == [
        PeerAnswer(200, "", None)
    ]
    (answer,) = (
        Read()
        .feed(
            b"HTTP/1.1 400 No\r\nSrmp-Reason: a\xadb"
            + b"x" * 1000
            + b"\r\nContent-Length: 0\r\n\r\n"
        )
        .answers
    )
    assert answer.reason == "a?b" + "x" * (REASON_MAX - 3)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    read = Read().feed(b"HTTP/1.1 200 OK\r\n\r\nfine")
    assert (read.answers, read.parser.ends_with_connection) == ([], True)
    assert (
        not Read()
        .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine")
        .parser.ends_with_connection
    )
    assert not Read().feed(b"HTTP/1.1 200 OK\r\n").parser.ends_with_connection


def test_the_limits_count_the_head_the_interim_answers_and_the_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nX: "
    assert not Read().feed(head, b"y" * (ANSWER_HEAD_MAX - len(head))).parser.head_has_no_end
    assert Read().feed(head, b"y" * (ANSWER_HEAD_MAX - len(head) + 1)).parser.head_has_no_end
    assert not Read().feed(INTERIM * INTERIM_ANSWERS_MAX).parser.head_has_no_end
    flood = Read().feed(
        INTERIM * (INTERIM_ANSWERS_MAX + 1) + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    )
    assert flood.parser.head_has_no_end
    assert flood.answers == [], "however few reads bring it"
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".ljust(ANSWER_MAX, b"x")
    assert not Read().feed(body).parser.is_too_long
    longer = Read().feed(body + b"x").parser
    assert longer.is_too_long
    assert not longer.head_has_no_end


@pytest.mark.parametrize("head", [ANSWER_HEAD_MAX - 1, ANSWER_HEAD_MAX, ANSWER_HEAD_MAX + 1])
@pytest.mark.parametrize("size", [ANSWER_MAX - 1, ANSWER_MAX, ANSWER_MAX + 1])
def test_a_limit_is_a_place_in_the_bytes_however_they_are_cut(head: int, size: int) -> None:
    end = b"\r\n\r\n"
    text = (b"HTTP/1.1 400 No\r\nX: ".ljust(head - len(end), b"y") + end).ljust(size, b"z")

    def outcome(*pieces: bytes) -> tuple[bool, bool]:
        parser = Read().feed(*pieces).parser
        return parser.head_has_no_end, parser.is_too_long

    has_no_end = head > ANSWER_HEAD_MAX
    expected = (has_no_end, has_no_end or size > ANSWER_MAX)
    assert outcome(text) == expected
    for at in (8, 20, head - 1, head, head + 1, ANSWER_MAX - 2, size - 1):
        assert outcome(text[:at], text[at:]) == expected
        assert outcome(text[:7], text[7:at], text[at:]) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedAnswerError, match="malformed"):
        Read().feed(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"7", 7.0), (b" 0 ", 0.0), (b"Sun, 22 Nov 2026 06:00:30 GMT", 30.0), (b"Sun, 22 Nov 2026 05:00:00 GMT", 0.0),
     (b"soon", None), (b"-1", None), (b"", None), (b"9" * 400, 999_999_999.0),
     (b"Sun, 99999999999999999999 Nov 2026 06:00:30 GMT", None), (b"Sun, 22 Nov 99999999999999 06:00:30 GMT", None)],
)  # fmt: skip
def test_retry_after(value: bytes, seconds: float | None) -> None:
    assert retry_after_of(value, NOW) == seconds
