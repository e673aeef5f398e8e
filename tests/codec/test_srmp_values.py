"""Dates against Python's own calendar, and the other texts of [MC-MQSRM] 2.2.1."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import quick

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import NEVER
from srmp_spark.srmp.codec.values import (
    NEVER_AT,
    format_correlation,
    format_date,
    format_response_queue,
    parse_correlation,
    parse_date,
    parse_response_queue,
    sequence_number,
    unsigned_long,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@quick
@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_dates_are_those_of_the_calendar(moment):
    text = f"{moment.year:04d}{moment:%m%dT%H%M%S}"
    at = (moment.replace(microsecond=0) - EPOCH) // timedelta(microseconds=1)
    assert parse_date(text) == at
    assert format_date(at) == text
    assert format_date(at + moment.microsecond) == text


@quick
@given(st.from_regex(r"[0-9]{8}T[0-9]{6}", fullmatch=True))
def test_what_the_calendar_has_not_is_refused(text):
    try:
        datetime.strptime(text.encode("ascii").decode(), "%Y%m%dT%H%M%S").replace(
            tzinfo=timezone.utc
        )
        is_date = text[13:] not in ("60", "61")
    except (ValueError, UnicodeEncodeError):
        is_date = False
    if is_date:
        assert format_date(parse_date(text)) == text
    else:
        with pytest.raises(RemoteProtocolError):
            parse_date(text)


def test_every_day_of_four_hundred_years():
    day = datetime(1999, 12, 31, tzinfo=timezone.utc)
    for _ in range(0, 146_097, 7):
        at = (day - EPOCH) // timedelta(microseconds=1)
        assert format_date(at) == f"{day:%Y%m%d}T000000"
        day += timedelta(days=7)


def test_never():
    assert parse_date(NEVER) == NEVER_AT == (2**31 - 1) * 1_000_000
    assert format_date(NEVER_AT) == NEVER


@pytest.mark.parametrize(
    "at",
    [parse_date("00010101T000000") - 1, parse_date("99991231T235959") + 1_000_000, -(2**62), 2**62],
)
def test_a_moment_that_the_form_cannot_carry(at):
    with pytest.raises(LocalProtocolError):
        format_date(at)


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("18446744073709551615", 2**64 - 1)]
)
def test_unsigned_long(text, number):
    assert unsigned_long(text, "App") == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        " 1",
        "1.0",
        "1e3",
        "0x1",
        "١",
        "18446744073709551616",
        "000000000000000000001",
    ],
)
def test_no_unsigned_long(text):
    with pytest.raises(RemoteProtocolError, match="<App>"):
        unsigned_long(text, "App")


def test_a_position_has_one_text():
    assert sequence_number("10", "current", minimum=1, maximum=10, section="x") == 10
    for text in ("01", "0", "11", ""):
        with pytest.raises(RemoteProtocolError):
            sequence_number(text, "current", minimum=1, maximum=10, section="x")


@quick
@given(st.binary(min_size=20, max_size=20))
def test_correlations_come_back(correlation):
    assert parse_correlation(format_correlation(correlation)) == correlation


@pytest.mark.parametrize(
    "name", ["http://m/msmq/q", "HTTPS://m/msmq/q", "DIRECT=OS:m\\q", "PUBLIC=x", "MSMQ:x"]
)
def test_response_queues_come_back(name):
    assert parse_response_queue(format_response_queue(name)) == name
