"""The page of the HTTP API: every route with its right, from the routes and their handlers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from unittest.mock import MagicMock

from reference_pages.markdown import code, of_docstring, paragraphs, table, whole_page
from srmp_spark.queue_manager.api.app import routes
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side.router import ApiRoute, Extent

_INTRO = """\
The base is the address of `--api`. Answers are JSON unless a section says otherwise. Names in a
path are percent-encoded; `private$/orders` may stand as it is. Errors have the form and the codes
of the [errors page](errors.md#codes-of-the-api). [INTERFACE](../INTERFACE.md) sections 3 and 7 say
what outside programs may rely on, and which limits hold.

A right is a verb of a `[[token]]`, for the queue of the path or for all queues. The token of
`--token-file` has every right. Without any token the API serves, on loopback, the user of `serve`
and root."""
_SCOPES = {
    Extent.QUEUE: "the queue",
    Extent.SEEN: "shows the queues of the token",
    Extent.ALL: "all queues",
    Extent.NOBODY: "no token",
}
_CALL = re.compile(r"Answer ``[^`]*``:? ?")
_PARAMETERS = re.compile(r"\[?\?[a-z\[][^` ]*")
_ERRORS = re.compile(r" ?Raises the errors of [^.]*(?:\.\w[^.]*)*\.| ?Raises :class:`[^.]*\.")
_ALSO = re.compile(r",? and (?:the errors (?:of|by)|:class:)[^.]*(?:\.\w[^.]*)*(?=\.)")
_CONSTANT = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")


def _right(route: ApiRoute) -> str:
    access = route.access
    if access.extent is Extent.NOBODY:
        return "no token"
    verb = "any token" if access.verb == "any" else code(access.verb)
    if access.default_verb is not None:
        verb += f" (consumer `default`: {code(access.default_verb)})"
    return f"{verb}, {_SCOPES[access.extent]}"


def _words(route: ApiRoute) -> tuple[str, str]:
    """Return the parameters of a route and its description, from the docstring of its handler."""
    text = inspect.getdoc(route.handler) or ""
    found = _PARAMETERS.search(" ".join(re.findall(r"``([^`]*)``", text)))
    parts = [_for_callers(" ".join(each.split()), route) for each in text.split("\n\n")]
    words = paragraphs(of_docstring("\n\n".join(each for each in parts if each)))
    return _balanced(found[0]) if found else "", words


def _balanced(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _for_callers(text: str, route: ApiRoute) -> str:
    """Return a paragraph of a docstring as a caller of the API needs it.

    Errors of the code become answers, and constants are shown with their values.
    """
    text = _ALSO.sub("", _ERRORS.sub("", _CALL.sub("", text))).strip()
    text = re.sub(r"\b(Also r|R)aises an? (?=\d{3})", _answers, text)
    text = re.sub(r"\braises an? (?=\d{3})", "is answered ", text)
    text = re.sub(r"(?<=[ ,])an? (?=[45]\d\d\b)", "", text).replace("503 is raised", "it is 503")
    names = vars(inspect.getmodule(route.handler))
    text = _CONSTANT.sub(lambda match: f"{match[0]} ({names.get(match[0], '…')})", text)
    return text[:1].upper() + text[1:]


def _answers(match: re.Match[str]) -> str:
    return "Also answers " if match[1] == "Also r" else "Answers "


def _parts() -> Iterator[str]:
    found = routes(MagicMock(), HealthApi.__new__(HealthApi), None)
    yield "## Routes"
    yield table(
        ("call", "right"), ((code(f"{each.method} {each.path}"), _right(each)) for each in found)
    )
    yield "A `HEAD` of a path that answers `GET` has the head of that answer."
    for _, group in groupby(found, key=lambda each: each.handler):
        calls = list(group)
        parameters, words = _words(calls[0])
        yield f"## {calls[0].method} {calls[0].path}"
        if len(calls) > 1:
            others = ", ".join(code(f"{each.method} {each.path}") for each in calls[1:])
            yield paragraphs(f"Also {others}.")
        yield f"Right: {_right(calls[0])}." + (f" Query: {code(parameters)}." if parameters else "")
        yield words


def page() -> str:
    """Return the page."""
    return whole_page("HTTP API", _INTRO, _parts())
