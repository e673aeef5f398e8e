"""The page of the errors: exit codes, classes, reasons of a refused message, codes of the API."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from reference_pages.markdown import (
    code,
    item,
    marked,
    of_docstring,
    paragraphs,
    sentence,
    table,
    whole_page,
)
from reference_pages.source_code import UNKNOWN, Call, calls
from srmp_spark import errors
from srmp_spark.commands.doctor import EXPLANATIONS
from srmp_spark.interface import ExitCode, exit_code_of

_INTRO = """\
An error says what happened, and what to do next. A command prints it in one line on standard error.
[Troubleshooting](../troubleshooting.md) has the cases that need more room. Where a text has `…`,
the error names a value."""
WORDS_MIN = 3
"""Fewest words of a message that are known without running: fewer tell nothing."""
_WORD = re.compile(r"[A-Za-z]{2,}")
_EXCEPTIONS = ("ApiError", "BatchError")
_REFUSING = {"Refused": 1, "HeadError": 1, "refuse": 1, "close": 0}
"""Class or method that refuses a message → place of the reason among its arguments.

The status stands first. ``Gate.close`` has none.
"""
_PORTS = ("srmp_port", "wsrm")
"""Rooms whose method ``refuse`` answers a request of a sender."""
_STATUS_OF_GATE = 503
_OF_READING = {
    "malformed": ("400", "413", "415"),
    "target": ("400", "404", "414"),
    "chunked": ("400", "413"),
}
"""Reason whose status is chosen where the bytes are read → its statuses."""


class Refusal(NamedTuple):
    """One place in the source that answers a call or a message with an error."""

    status: str
    code: str
    message: str
    hint: str


def _exit_codes() -> Iterator[tuple[str, str]]:
    """Yield each exit code with the docstring that follows it in the source."""
    body = ast.parse(inspect.getsource(ExitCode)).body[0]
    assert isinstance(body, ast.ClassDef)
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.Assign) and isinstance(after, ast.Expr):
            assert isinstance(before.targets[0], ast.Name)
            assert isinstance(after.value, ast.Constant)
            yield str(ExitCode[before.targets[0].id].value), str(after.value.value)


def _classes() -> Iterator[tuple[str, str, str, str]]:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.SrmpSparkError):
            parent = kind.__bases__[0].__name__
            words = (inspect.getdoc(kind) or "").split("\n\n")[0]
            words = re.sub(r"^Reports that | \(exit code \d\)", "", of_docstring(words))
            yield code(name), code(parent), str(exit_code_of(kind).value), sentence(words)


def refused_messages() -> dict[str, set[str]]:
    """Return the reasons with which a message is refused, with the HTTP statuses of each."""
    found = {reason: set(statuses) for reason, statuses in _OF_READING.items()}
    for call in calls():
        place = _REFUSING.get(_name(call) or _attribute(call))
        if place is None or len(call.node.args) <= place + 1:
            continue
        reason = call.text(call.node.args[place])
        if reason is None or UNKNOWN in reason or reason in _OF_READING:
            continue
        status = call.number(call.node.args[0]) if place else _STATUS_OF_GATE
        found.setdefault(reason, set()).update([str(status)] if status else ["400", "503"])
    return found


def _name(call: Call) -> str:
    function = call.node.func
    return function.id if isinstance(function, ast.Name) else ""


def _attribute(call: Call) -> str:
    """Return the name of the method that is called, if it is one of a gate or of a port."""
    function = call.node.func
    if not isinstance(function, ast.Attribute):
        return ""
    of_gate = ast.unparse(function.value).endswith("gate")
    of_port = function.attr == "refuse" and call.path.parent.name in _PORTS
    return function.attr if of_gate or of_port else ""


def answers() -> tuple[Refusal, ...]:
    """Return every error of the API whose code stands in the source."""
    return tuple(found for call in calls() if (found := _answer(call)) is not None)


def _answer(call: Call) -> Refusal | None:
    given = dict(enumerate(call.node.args)) | {
        each.arg: each.value for each in call.node.keywords if each.arg is not None
    }
    if _name(call) == "usage" and 0 in given:
        status, name, message, hint = "400", "usage", given[0], given.get(1, given.get("hint"))
    elif _name(call) in _EXCEPTIONS and {0, 1, 2} <= given.keys():
        number, text = call.number(given[0]), call.text(given[1])
        if text is None or UNKNOWN in text:
            return None
        status, name = str(number) if number else UNKNOWN, text
        message, hint = given[2], given.get(3, given.get("hint"))
    else:
        return None
    return Refusal(status, name, call.text(message) or "", (hint and call.text(hint)) or "")


def _reasons() -> Iterator[str]:
    statuses = refused_messages()
    for reason, (meaning, advice) in sorted(EXPLANATIONS.items()):
        found = " or ".join(sorted(statuses.get(reason, ())))
        yield f"### {reason}"
        yield paragraphs(f"*{found}* · {marked(meaning)}." if found else f"{marked(meaning)}.")
        yield item(f"**What to do:** {marked(advice.format(queue='QUEUE', host='HOST'))}")


def _codes() -> Iterator[str]:
    by_code: dict[str, list[Refusal]] = {}
    for each in answers():
        by_code.setdefault(each.code, []).append(each)
    for name, found in sorted(by_code.items()):
        statuses = " or ".join(sorted({each.status for each in found}))
        yield f"### {name}" + ("" if statuses == UNKNOWN else f" ({statuses})")
        texts = {
            " ".join(f"{each.message}{'; ' * bool(each.hint)}{each.hint}".split())
            for each in found
            if len(_WORD.findall(each.message)) >= WORDS_MIN
        }
        yield "\n".join(item(code(text.replace("`", "'"))) for text in sorted(texts)) or (
            "The message says what is wrong."
        )


def _parts() -> Iterator[str]:
    yield "## Exit codes"
    yield table(("code", "meaning"), _exit_codes())
    yield "## Classes"
    yield paragraphs(
        "All are in `srmp_spark.errors`. A command or job that ends with one has the exit code of "
        "the class. `srmp_spark.extras.MissingExtraError`, a `ConfigurationError` and an "
        "`ImportError`, is raised where an extra is not installed."
    )
    yield table(("class", "is a", "exit code", "meaning"), _classes())
    yield "## Why a message was refused"
    yield paragraphs(
        "The code stands in the header `Srmp-Reason` of the answer, and in the metric "
        "`srmp_messages_refused_total{reason}`. A 400 or 403 after the message was read is logged "
        "as `accept.refused`, a sender that is no writer as `writer.refused`; a 503 is counted "
        "only. After 400 the sender deletes the message; after any other status it keeps the "
        "message and sends it again. `srmp-spark doctor --queue NAME` prints the same explanation."
    )
    yield from _reasons()
    yield "### Only in the metric"
    yield paragraphs(
        "The metric has these reasons too: `wsrm` (a request of WS-ReliableMessaging that "
        "its queue cannot accept, logged as `wsrm.refused`), `wsrm-` with the name of a SOAP fault "
        "(logged as `wsrm.fault`), and `other` when there are 1,000 pairs of status and reason. "
        "`expired` and `invalid-signature` have the status 200 there for a message of a stream: it "
        "was discarded, and its receipts say so."
    )
    yield "## Codes of the API"
    yield paragraphs(
        'The answer is `{"error": {"code", "message", "hint", "section"}}`. A command prints '
        "message, hint and code, and ends with exit code 4."
    )
    yield from _codes()


def page() -> str:
    """Return the page."""
    return whole_page("Errors", _INTRO, _parts())
