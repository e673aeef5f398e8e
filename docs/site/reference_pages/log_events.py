"""The page of the log events: what each line means, its level and fields, and what to do next.

Levels are read from the log calls. Fields, meaning and advice are those of the tables
``log_events`` in the rooms (:class:`srmp_spark.log_event.LogEvent`). Each call must have an entry,
and each entry a call.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from reference_pages.markdown import code, item, paragraphs, whole_page
from reference_pages.source_code import PACKAGE, Call, calls, module_name
from srmp_spark.log_event import LogEvent
from srmp_spark.logs.fields import FIELDS, FieldType
from srmp_spark.logs.template import read_template

_INTRO = """\
A line of the log begins with time, level and the name of its event. Its fields are `name=value`, or
with `--log-format json` the members of one object ([logging](../logging.md)). A line with a
traceback is a fault of srmp-spark unless the page says otherwise: please report it. `serve` logs to
standard error from level info on. Queries and jobs log with Python's `logging`.

A field is a string unless its type stands beside it. A name has one type in all events.

PROCESS stands for the name of a process: `reader`, `sender`, `multicast`, `wsrm`, `rpc` or
`subscriptions`."""
_PAGES = {
    "troubleshooting": "../troubleshooting.md",
    "Troubleshooting": "../troubleshooting.md",
    "errors page": "errors.md",
}
_LEVELS = {"exception": "error", "log": "info or warning"}
_SEVERITY = ("debug", "info", "warning", "error", "critical")
_NAME = re.compile(r"[a-z_%]+\.[a-z_%]+")


class Logged(NamedTuple):
    """A log call with an event."""

    name: str
    """The name as it stands in the source, where ``%s`` may stand for a part of it."""
    level: str
    fields: tuple[str, ...]
    where: str
    """Path and line of the call."""

    def is_of(self, event: str) -> bool:
        """Return whether the call may write the event of this name."""
        shape = re.escape(self.name).replace("%s", "([a-z]+|PROCESS)")
        return re.fullmatch(shape, event) is not None


@cache
def logged() -> tuple[Logged, ...]:
    """Return every log call of the package that has an event."""
    return tuple(found for call in calls() if (found := of_call(call)) is not None)


def of_call(call: Call) -> Logged | None:
    """Return what a call logs, or ``None`` if it is no log call with an event."""
    function = call.node.func
    if not isinstance(function, ast.Attribute) or not is_a_log(function):
        return None
    arguments = call.node.args[1:] if function.attr == "log" else call.node.args
    text = (call.text(arguments[0]) if arguments else None) or ""
    name = _NAME.match(text)
    if name is None:
        return None
    fields = tuple(field for field, _ in read_template(text).fields)
    where = f"{call.path.relative_to(PACKAGE.parent)}:{call.node.lineno}"
    level = _LEVELS.get(function.attr, function.attr)
    return Logged(name[0].rstrip("_"), level, fields, where)


def is_a_log(function: ast.Attribute) -> bool:
    """Return whether a call of ``function`` writes to the log."""
    owner = function.value
    return (
        isinstance(owner, ast.Name)
        and owner.id in ("log", "_log")
        and function.attr in ("debug", "info", "warning", "error", "exception", "critical", "log")
    )


def told_elsewhere() -> tuple[str, ...]:
    """Return the events whose names are put together outside of a log call.

    ``SubqueueLog.tell`` gets the name as an argument, because it also limits the lines.
    """
    return tuple(
        text
        for call in calls()
        if isinstance(call.node.func, ast.Attribute)
        and call.node.func.attr == "tell"
        and call.node.args
        and (text := call.text(call.node.args[0])) is not None
        and _NAME.fullmatch(text)
    )


@cache
def tables() -> dict[str, tuple[LogEvent, ...]]:
    """Return the tables of the rooms: by the docstring of their module, their events."""
    found = {}
    for path in sorted(PACKAGE.rglob("log_events.py")):
        module = importlib.import_module(module_name(path))
        title = (module.__doc__ or "").strip().removeprefix("Explain the log events of ")
        found[title.rstrip(".").replace("``", "`")] = tuple(module.EVENTS)
    return found


def _linked(text: str) -> str:
    """Return a text of a table with links to the pages that the text names."""
    return re.sub("|".join(_PAGES), lambda name: f"[{name[0]}]({_PAGES[name[0]]})", text)


def _field(name: str) -> str:
    kind = FIELDS[name]
    return code(name) + ("" if kind is FieldType.STRING else f" ({kind.value})")


def _event(event: LogEvent) -> Iterator[str]:
    exact = [each for each in logged() if each.name == event.name]
    found = exact or [each for each in logged() if each.is_of(event.name)]
    written = {level for each in found for level in each.level.split(" or ")} or {"info"}
    levels = " or ".join(level for level in _SEVERITY if level in written)
    fields = ", ".join(map(_field, event.fields))
    yield f"### {event.name}"
    yield paragraphs(f"*{levels}*" + (f" · {fields}" if fields else ""))
    yield paragraphs(_linked(event.meaning))
    if event.action:
        yield item(f"**What to do:** {_linked(event.action)}")


def _parts() -> Iterator[str]:
    for title, events in sorted(tables().items()):
        yield f"## {title[0].upper()}{title[1:]}"
        for event in events:
            yield from _event(event)


def page() -> str:
    """Return the page."""
    return whole_page("Log events", _INTRO, _parts())
