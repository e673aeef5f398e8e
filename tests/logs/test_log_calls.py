"""Holds each log call to the tables: the fields of its lines of JSON, and their types.

Pipelines that read the lines rely on these names.
"""

from __future__ import annotations

import ast
import importlib
import json
import logging
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from srmp_spark.log_event import LogEvent
from srmp_spark.logs.fields import FIELDS, FIXED, FieldType, member_name
from srmp_spark.logs.json_lines import JsonFormatter
from srmp_spark.logs.template import read_template

SITE = str(Path(__file__).resolve().parents[2] / "docs" / "site")
KINDS: dict[FieldType, type | tuple[type, ...]] = {
    FieldType.STRING: str,
    FieldType.INTEGER: int,
    FieldType.NUMBER: (int, float),
    FieldType.BOOLEAN: bool,
}
SAMPLES = {
    FieldType.STRING: "words",
    FieldType.INTEGER: 7,
    FieldType.NUMBER: 1.5,
    FieldType.BOOLEAN: True,
}


def module(name: str) -> ModuleType:
    sys.path.insert(0, SITE)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(SITE)


@cache
def log_calls() -> tuple[Any, ...]:
    log_events = module("reference_pages.log_events")
    return tuple(
        call
        for call in module("reference_pages.source_code").calls()
        if isinstance(call.node.func, ast.Attribute) and log_events.is_a_log(call.node.func)
    )


def template_of(call: Any) -> ast.expr:
    found: ast.expr = call.node.args[call.node.func.attr == "log"]
    return found


def events() -> dict[str, LogEvent]:
    tables = module("reference_pages.log_events").tables()
    return {event.name: event for table in tables.values() for event in table}


def is_constant(call: Any, node: ast.expr) -> bool:
    """Whether a value is written in the source: a text, one of two, or a name for such a text."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.IfExp):
        return is_constant(call, node.body) and is_constant(call, node.orelse)
    if not isinstance(node, ast.Name) or call.function is None:
        return False
    arguments = call.function.args
    given = {each.arg for each in (*arguments.args, *arguments.kwonlyargs, *arguments.posonlyargs)}
    values = [
        each.value
        for each in ast.walk(call.function)
        if isinstance(each, ast.Assign)
        and any(isinstance(at, ast.Name) and at.id == node.id for at in each.targets)
    ]
    others = [
        each
        for each in ast.walk(call.function)
        if isinstance(each, ast.Name) and each.id == node.id and isinstance(each.ctx, ast.Store)
    ]
    return (
        node.id not in given
        and bool(values)
        and len(others) == len(values)
        and all(is_constant(call, value) for value in values)
    )


def test_the_text_of_each_log_call_is_written_in_the_source() -> None:
    """Fields are found in it. A text with a stranger's words in it would let him name fields."""
    assert len(log_calls()) > 250, "they are where this test looks"
    found = [
        f"{call.path.name}:{call.node.lineno}: pass values as arguments of the log call"
        for call in log_calls()
        if not is_constant(call, template_of(call))
    ]
    assert found == []


def sample_line(text: str) -> dict[str, Any]:
    """The line of JSON of a log call with arguments that fit its text and its fields."""
    conversions = [each for each in re.findall(r"%[^a-zA-Z%]*[a-zA-Z%]", text) if each != "%%"]
    values: list[object] = [
        7 if each[-1] == "d" else 1.5 if each[-1] in "fg" else "words" for each in conversions
    ]
    for name, piece in read_template(text).fields:
        if piece.is_one_value and piece.text[-1] in "sr":
            values[piece.first] = SAMPLES[FIELDS.get(member_name(name), FieldType.STRING)]
    event = read_template(text).event
    if event is not None:
        for place in range(event.first, event.last):
            values[place] = "name.part" if event.text == "%s" else "part"
    record = logging.LogRecord("srmp_spark.x", logging.INFO, "f", 1, text, tuple(values), None)
    line: dict[str, Any] = json.loads(JsonFormatter("serve").format(record))
    return line


def test_each_log_call_has_the_fields_of_its_event_with_their_types() -> None:
    reference = module("reference_pages.log_events")
    wrong, written = [], dict[str, set[str]]()
    exact = {call.name for call in reference.logged()}
    for call in log_calls():
        logged = reference.of_call(call)
        if logged is None:
            continue
        line = sample_line(call.text(template_of(call)) or "")
        fields = {name: value for name, value in line.items() if name not in FIXED}
        of_it = [name for name in events() if logged.is_of(name)]
        for name in of_it:
            written.setdefault(name, set()).update(fields)
            # A call with a part of its name as a value may be of an event that has calls of its own.
            is_of_other = name != logged.name and name in exact
            if not is_of_other and (extra := fields.keys() - set(events()[name].fields)):
                wrong.append(f"{logged.where}: add {sorted(extra)} to fields of {name}")
        for name, value in fields.items():
            if name not in FIELDS:
                wrong.append(
                    f"{logged.where}: add {name} with its type to srmp_spark/logs/fields.py"
                )
            elif not isinstance(value, KINDS[FIELDS[name]]):
                wrong.append(f"{logged.where}: {name} is {FIELDS[name].value}, got {value!r}")
    for name, event in events().items():
        if name in written and (lonely := set(event.fields) - written[name]):
            wrong.append(f"{name}: no log call writes {sorted(lonely)}")
    assert wrong == [], "\n" + "\n".join(wrong)


def test_no_field_has_a_name_of_every_line_or_a_name_twice() -> None:
    assert FIELDS.keys() & set(FIXED) == set()
    assert [
        each.name for each in events().values() if len(set(each.fields)) < len(each.fields)
    ] == []


def test_each_type_is_that_of_a_field() -> None:
    used = {name for event in events().values() for name in event.fields}
    assert FIELDS.keys() - used == set(), "take it out of srmp_spark/logs/fields.py"


@pytest.mark.parametrize(
    ("text", "event", "fields"),
    [
        ("disk.freed", "disk.freed", {}),
        ("a.b x=%s: y=%d, (z=%r)", "a.b", {"x": "%s", "y": "%d", "z": "%r"}),
        ('a.b x="say %s, y=%s" z=in', "a.b", {"x": "say %s, y=%s", "z": "in"}),
        ("a.b 100%% x=%.1f", "a.b", {"x": "%.1f"}),
        ("%s name=%s", "%s", {"name": "%s"}),
        ("%s", None, {}),
        ("no event x=%s", None, {}),
    ],
)
def test_a_text_is_read(text: str, event: str | None, fields: dict[str, str]) -> None:
    found = read_template(text)
    assert (found.event.text if found.event else None) == event
    assert {name: piece.text for name, piece in found.fields} == fields
