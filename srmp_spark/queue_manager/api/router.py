"""Which handler answers which path: one table, matched segment by segment on the raw path.

Segments are percent-decoded after splitting, so ``private%24%2Forders`` is one. ``private$/orders`` with its slash as it
stands is taken as one name too: people type it, and no route has a segment ``private$``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.http import Request, Response, usage
from srmp_spark.queue_manager.tokens import Verb

Handler = Callable[[Request], Awaitable[Response]]

SEGMENTS_MAX = 12
"""The longest route has six."""


class Extent(Enum):
    """What a token must be allowed for."""

    QUEUE = "queue"
    """The queue that the path names."""
    SEEN = "seen"
    """Nothing in particular: the answer shows the queues that the token is for."""
    ALL = "all"
    """Every queue, and what is none of ours: what goes out, metrics."""
    NOBODY = "nobody"
    """No queue: an orchestrator's probes carry no token, and are answered one word."""


class Access(NamedTuple):
    """What a route asks of its caller."""

    verb: Verb | Literal["any", "none"]
    """``any``: every token will do. ``none``: nor is one needed."""
    extent: Extent


class Route(NamedTuple):
    """``GET /v1/queues/{queue}/range``, what it takes to call it, and who answers it."""

    method: str
    path: str
    access: Access
    handler: Handler


def segments_of(raw_path: bytes) -> list[str]:
    """The decoded segments of a raw path. Raises a 400."""
    pieces = raw_path.split(b"/")[1:]
    if len(pieces) > SEGMENTS_MAX:
        raise usage("the path is too long")
    try:
        segments = [unquote_to_bytes(piece).decode("utf-8") for piece in pieces]
    except UnicodeDecodeError:
        raise usage("the path is not UTF-8") from None
    joined: list[str] = []
    for segment in segments:
        if joined and joined[-1].lower() == "private$":
            joined[-1] += "/" + segment
        else:
            joined.append(segment)
    return joined


class Router:
    """All routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(route, route.path.split("/")[1:]) for route in routes]

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route and its parameters. Raises a 404, or a 405 when the path exists for another method."""
        segments = segments_of(raw_path)
        allowed: list[str] = []
        for route, pattern in self._routes:
            if len(pattern) != len(segments):
                continue
            parameters: dict[str, str] = {}
            for wanted, got in zip(pattern, segments, strict=True):
                if wanted.startswith("{"):
                    parameters[wanted[1:-1]] = got
                elif wanted != got:
                    break
            else:
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route, parameters
                allowed.append(route.method)
        if allowed:
            raise ApiError(
                405,
                "method-not-allowed",
                f"{method} is not allowed here",
                f"allowed: {', '.join(sorted(allowed))}",
            )
        raise ApiError(
            404,
            "no-such-path",
            "the API has no such path",
            "see INTERFACE.md section 3",
            "INTERFACE.md section 3",
        )
