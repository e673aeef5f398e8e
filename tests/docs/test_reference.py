"""The reference is what the code has now, and no event, metric, option or column of the code lacks a sentence."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from functools import cache
from types import ModuleType

import pytest
from test_docs import ROOT, text_of

from srmp_spark.queue_manager.metrics import COUNTERS
from srmp_spark.rows.columns import COLUMNS
from srmp_spark.spark.settings.mqrr_options import MQRR_OPTIONS
from srmp_spark.spark.settings.options import SOURCE_OPTIONS, parse
from srmp_spark.spark.settings.sink_options import SINK_OPTIONS, parse_sink

FOLDER = ROOT / "docs" / "reference"
NAMES = (
    "api.md", "columns.md", "command-line.md", "errors.md", "log-events.md", "metrics.md", "options.md", "serve-toml.md",
)  # fmt: skip
WITHOUT_EVENT = {"ingest.py": 1, "sending.py": 1, "subqueues.py": 1, "writer.py": 1}
"""Log calls without the name of an event: progress for people, a text of the caller's. No further ones."""
QUEUE = {"queueManager": "http://127.0.0.1:8081", "queue": "orders"}


@cache
def module(name: str) -> ModuleType:
    """A module of ``docs/site``, which is no package."""
    import importlib

    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


@cache
def pages() -> dict[str, str]:
    return module("reference_pages").pages()


def test_the_pages_are_there_and_no_other_ones() -> None:
    assert sorted(pages()) == sorted(NAMES)
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_code_has_now(name: str) -> None:
    assert (FOLDER / name).is_file(), "run make docs-reference and commit it"
    assert text_of(FOLDER / name) == pages()[name], (
        f"docs/reference/{name} is not what the code has now: run make docs-reference and commit it"
    )


def test_the_description_of_each_call_is_a_sentence() -> None:
    """The docstring of its handler begins with the call and a colon."""
    first = re.findall(r"^Right: .*\n\n(\S+)", pages()["api.md"], re.M)
    assert len(first) > 30
    assert {word for word in first if word in ("When", "With", "In", "Answer")} == set()


# --- log events ----------------------------------------------------------------------------------


def events() -> list[object]:
    log_events = module("reference_pages.log_events")
    return [event for table in log_events.tables().values() for event in table]


def test_each_log_call_has_a_sentence() -> None:
    names = [event.name for event in events()]
    calls = module("reference_pages.log_events").logged()
    assert len(calls) > 250, "they are where this test looks"
    missing = [f"{call.name} ({call.where})" for call in calls if not any(map(call.is_of, names))]
    assert missing == [], "give each a row in log_events.py of its room"


def test_each_sentence_has_a_log_call() -> None:
    log_events = module("reference_pages.log_events")
    calls, elsewhere = log_events.logged(), log_events.told_elsewhere()
    lonely = [
        event.name
        for event in events()
        if event.name not in elsewhere and not any(call.is_of(event.name) for call in calls)
    ]
    assert lonely == [], "take the rows of events that nobody logs out of log_events.py"


def test_each_log_call_has_an_event() -> None:
    log_events, source = module("reference_pages.log_events"), module("reference_pages.source_code")
    found: dict[str, int] = {}
    for call in source.calls():
        function = call.node.func
        if isinstance(function, ast.Attribute) and log_events.is_a_log(function):
            found[call.path.name] = found.get(call.path.name, 0) + (
                log_events.of_call(call) is None
            )
    assert {name: count for name, count in found.items() if count} == WITHOUT_EVENT


def test_the_sentences_of_events_are_sentences() -> None:
    names = [event.name for event in events()]
    assert len(names) == len(set(names))
    for event in events():
        assert re.fullmatch(r"[A-Z`].{15,}[.]", event.meaning), event.name
        assert re.fullmatch(r"(\w|`).{5,}[.]|", event.action), event.name


# --- options, columns, metrics -------------------------------------------------------------------


@pytest.mark.parametrize("table", [SOURCE_OPTIONS, SINK_OPTIONS, MQRR_OPTIONS])
def test_each_option_says_what_it_takes(table: tuple[object, ...]) -> None:
    for spec in table:
        assert spec.meaning.endswith("."), spec.name
        if spec.kind == "true or false":
            assert spec.default in ("true", "false"), spec.name
        elif " or " in spec.kind and re.fullmatch(r"[\w./-]+(;.*)?", spec.default):
            assert spec.default.partition(";")[0] in re.split(r", | or ", spec.kind), spec.name


@pytest.mark.parametrize("name", [each.name for each in SOURCE_OPTIONS])
def test_the_default_of_a_source_option_is_what_holds_without_it(name: str) -> None:
    (default,) = (each.default for each in SOURCE_OPTIONS if each.name == name)
    given = QUEUE | ({"minOffsetsPerTrigger": "5"} if name == "maxTriggerDelay" else {})
    if default and " " not in default:
        without, explicit = parse(given), parse(given | {name: default})
        assert replace(explicit, given=frozenset()) == replace(without, given=frozenset())


@pytest.mark.parametrize("name", [each.name for each in SINK_OPTIONS])
def test_the_default_of_a_sink_option_is_what_holds_without_it(name: str) -> None:
    (default,) = (each.default for each in SINK_OPTIONS if each.name == name)
    given = {"queueManager": QUEUE["queueManager"]}
    # The queue manager fills the versions in, and a missing onKeyConflict works with older ones.
    elsewhere = {"onKeyConflict", "wsrm_version", "soap_version", "wsa_version"}
    if default and " " not in default and name not in elsewhere:
        assert parse_sink(given | {name: default}) == parse_sink(given)


def test_each_column_has_a_sentence() -> None:
    assert len(COLUMNS) == 59
    for column in COLUMNS:
        assert column.meaning.endswith("."), column.name


def test_the_help_of_each_metric_is_a_sentence() -> None:
    rows = re.findall(r"^\| `(srmp_\w+)` \| \w+ \| (.*?) \| (.*) \|$", pages()["metrics.md"], re.M)
    assert len(rows) > len(COUNTERS) + 20
    for name, labels, text in rows:
        assert re.fullmatch(r"[A-Z0-9].{15,}[.]", text), name
        for label in set(re.findall(r"`(\w+)`", labels)) & {"reason", "kind", "how", "why", "of"}:
            assert label in text, f"the help of {name} says what its label {label} means"


# --- compatibility -------------------------------------------------------------------------------


def test_the_compatibility_page_has_the_versions_of_the_installation() -> None:
    page, project = text_of(ROOT / "docs" / "compatibility.md"), text_of(ROOT / "pyproject.toml")
    for name in ("delta-spark", r"pyspark\[connect\]"):
        (version,) = re.findall(rf'"{name}==([\d.]+)"', project)
        assert version in page, name
    (oldest,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    assert f"| Python {oldest} |" in page
    (deltalake,) = re.findall(r'"deltalake>=([\d.]+),', project)
    assert f"| deltalake (delta-rs) | {deltalake}," in page
