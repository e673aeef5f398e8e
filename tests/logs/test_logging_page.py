"""docs/logging.md says what the code does."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from srmp_spark.logs import json_lines
from srmp_spark.logs.fields import FIELDS, FIXED
from srmp_spark.logs.form import FORMATS, LEVELS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "logging.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "log-events.md").read_text()


def rows_of(heading: str) -> list[list[str]]:
    """The first cells of the tables of a section."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ][1:]


def test_each_level_and_each_form_is_there() -> None:
    assert {re.findall("`([a-z]+)`", row[0])[0] for row in rows_of("Level")} == set(LEVELS)
    assert all(f"`--log-format {form}`" in PAGE for form in FORMATS)


def test_the_line_that_it_shows_is_one_that_is_written() -> None:
    (shown,) = re.findall(r"```json\n(.*)\n```", PAGE)
    line = json.loads(shown)
    assert {row[0].strip("`") for row in rows_of("Text and JSON")} - {"every other name"} == set(
        FIXED
    )
    record = logging.LogRecord(
        line["logger"], logging.WARNING, "f", 1, 'receipt.blocked url=%s reason="%s" hint="%s"',
        (line["url"], "…", "…"), None,
    )  # fmt: skip
    written = json.loads(json_lines.JsonFormatter("serve").format(record))
    assert list(written) == list(line)
    assert {**written, "time": line["time"]} == line
    (text,) = re.findall(r"^\d{4}-.* WARNING (.*)$", PAGE, re.M)
    assert text == line["message"]


def test_its_limits_are_those_of_the_code() -> None:
    assert (json_lines.LINE_BYTES_MAX, json_lines.TRACEBACK_LINE_BYTES_MAX) == (4_096, 16 * 1_024)
    assert "at most 4,096 bytes, with a traceback 16 KiB" in PAGE


def test_each_event_has_its_level_and_each_field_exists() -> None:
    listed = rows_of("Events that need an operator")
    assert len(listed) > 10
    for events, level, _ in listed:
        for event in re.findall(r"\[([\w.]+)\]", events):
            assert f"### {event}\n\n*{level}*" in REFERENCE, event
    assert set(re.findall(r"\| json \| (\w+)=", PAGE)) <= set(FIELDS)
