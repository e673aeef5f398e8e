"""A line of JSON is one line and one object, whatever strangers have put into it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.logs.fields import FIXED
from srmp_spark.logs.json_lines import (
    INTEGER_MAX,
    LINE_BYTES_MAX,
    TRACEBACK_LINE_BYTES_MAX,
    JsonFormatter,
)

OWN = "srmp_spark.queue_manager.admission.refusal_log"


def line(text: object, *values: object, name: str = OWN, **more: Any) -> str:
    """The line of one record of level WARNING."""
    record = logging.LogRecord(
        name, logging.WARNING, "f", 1, text, values or None, **more or {"exc_info": None}
    )
    return JsonFormatter("serve").format(record)


def logged(text: object, *values: object, **more: Any) -> dict[str, Any]:
    """The line as its reader has it, which is one line of ASCII."""
    found = line(text, *values, **more)
    assert found.isascii()
    assert found.isprintable()
    most = TRACEBACK_LINE_BYTES_MAX if '"exception":' in found else LINE_BYTES_MAX
    assert len(found) < most

    def no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    read: dict[str, Any] = json.loads(found, object_pairs_hook=no_name_twice)
    return read


def test_a_line_has_the_fixed_names_and_the_fields_of_its_event_with_types() -> None:
    found = logged(
        'accept.refused status=%s rows=%d reason="%s": told once', 400, 3, "unknown-queue"
    )
    time = datetime.fromisoformat(found.pop("time").replace("Z", "+00:00"))
    assert abs((datetime.now(timezone.utc) - time).total_seconds()) < 60
    assert found == {
        "level": "warning",
        "event": "accept.refused",
        "message": 'accept.refused status=400 rows=3 reason="unknown-queue": told once',
        "process": "serve",
        "logger": OWN,
        "status": "400",
        "rows": 3,
        "reason": "unknown-queue",
    }


def test_the_time_is_rfc_3339_in_utc_with_microseconds() -> None:
    record = logging.LogRecord(OWN, logging.INFO, "f", 1, "disk.freed", None, None)
    record.created = 1_795_740_000.000001
    assert (
        json.loads(JsonFormatter("serve").format(record))["time"] == "2026-11-27T00:40:00.000001Z"
    )


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_adds_a_line_or_a_field_or_changes_another_one(one: str, other: str) -> None:
    found = logged('accept.refused destination=%s because="%s" rows=%d', one, other, 7)
    assert set(found) - set(FIXED) == {"destination", "because", "rows"}
    assert (found["event"], found["level"], found["rows"]) == ("accept.refused", "warning", 7)
    assert (found["destination"], found["because"]) == (one, other)


@pytest.mark.parametrize(
    "hostile",
    [
        'x","level":"critical","event":"process.failed',
        'a" rows=99 status=200 because="no',
        "http://a\n2026-11-25 18:00:00,000 WARNING token=stolen\r\x1b[2J\x7f\x85\u2028\u2029\x00",
        "%s %d %n %(name)s {0}",
        "\ud800\udfff lone \udc80",
        "private$/Größe-注文 😀 \u202egnitirw",
        "\\u0022,\\",
    ],
)
def test_a_hostile_text_stays_in_its_field(hostile: str) -> None:
    found = logged('stream.other_address queue=%s now=%s before="%s"', hostile, hostile, hostile)
    shown = hostile.encode("utf-8", "backslashreplace").decode()
    assert {found[name] for name in ("queue", "now", "before")} == {shown}
    assert found["message"] == f'stream.other_address queue={shown} now={shown} before="{shown}"'
    assert found["event"] == "stream.other_address"
    assert "rows" not in found
    assert found["level"] == "warning"


def test_a_long_text_is_cut_in_its_middle_and_the_line_stays_short() -> None:
    found = logged(
        "accept.refused destination=%s because=%s", "a" + "😀" * 5_000_000 + "z", "because"
    )
    assert found["destination"][0] == "a"
    assert found["destination"][-1] == "z"
    assert found["because"] == "because"
    assert len(logged("a.b x=%s", "y" * 300)["x"]) == 300


def test_the_end_of_a_long_traceback_stays() -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("first\nline" + "é" * 20_000 + "the end")

    try:
        deep(300)
    except ValueError:
        found = logged("api.failed", exc_info=sys.exc_info())
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("the end")


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("text", "values", "fields"),
    [
        ("disk.full free_bytes=%d", (2**63,), {"free_bytes": None}),
        ("disk.full free_bytes=%d", (-INTEGER_MAX,), {"free_bytes": -INTEGER_MAX}),
        ("disk.full free_bytes=%s", ("12",), {"free_bytes": None}),
        ("disk.full free_bytes=%s", (None,), {"free_bytes": None}),
        ("a.b seconds=%s", (float("nan"),), {"seconds": None}),
        ("a.b seconds=%.0f", (float("inf"),), {"seconds": None}),
        ("a.b seconds=%.0f", (1.25,), {"seconds": 1.25}),
        ("a.b transactional=%s", (True,), {"transactional": True}),
        ("a.b transactional=%s", ("yes",), {"transactional": None}),
        ("a.b queue=%s", (_Broken(),), {"queue": "<RuntimeError>"}),
        ("a.b queue=%r", ("it's",), {"queue": "it's"}),
        ("a.b key=%r", (b"\x00",), {"key": "b'\\x00'"}),
        ("a.b queue=%s", ({"a": 1},), {"queue": "{'a': 1}"}),
        ("a.b serials=%d-%d", (3, 9), {"serials": "3-9"}),
        ("a.b serials=%d-%d", ("x", 9), {"serials": "<TypeError>"}),
        ("a.b queue=%s", (), {"queue": None}),
        ("a.b queue=%s", (1, 2, 3), {"queue": "1"}),
        ("%s.died pid=%s", ("reader", 5), {"pid": 5}),
    ],
)
def test_a_value_of_another_type_is_null_and_no_value_raises(
    text: str, values: tuple[object, ...], fields: dict[str, object]
) -> None:
    found = logged(text, *values)
    assert {name: found[name] for name in found if name not in FIXED} == fields


@pytest.mark.parametrize("hostile", ["reader.died", "Reader died", "x\ny", 'a.b","event":"c.d'])
def test_an_event_is_a_name_and_nothing_else(hostile: str) -> None:
    """A text of another machine that stands where a name should is no event."""
    found = logged("%s queue=%s", hostile, "q")
    assert found["event"] == ("reader.died" if hostile == "reader.died" else None)


@pytest.mark.parametrize("name", ["asyncio", "py.warnings", "uvicorn.error", "srmp_sparkling"])
def test_another_library_has_the_fixed_names_alone(name: str) -> None:
    found = logged("process.ready queues=%d\nlistening=%s", 3, 'x" rows=1', name=name)
    assert set(found) == set(FIXED) - {"exception"}
    assert found["event"] is None
    assert found["message"] == 'process.ready queues=3\nlistening=x" rows=1'


def test_a_record_that_is_no_text_is_shown() -> None:
    assert logged(ValueError("a\nb"))["message"] == "a\nb"
    assert logged(_Broken())["message"].startswith("<RuntimeError>")
    assert logged("a.b rows=%d", "no number")["message"] == "a.b rows=%d ('no number',)"
