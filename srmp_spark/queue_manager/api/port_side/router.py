"""Find the handler of a path: one table, matched segment by segment on the raw path.

Segments are percent-decoded after splitting, so ``private%24%2Forders`` is one segment.
``private$/orders`` with an unescaped slash is accepted as one name too. People type such names, and
no route has a segment ``private$``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.trust.tokens import Verb

Handler = Callable[[Request], Awaitable[Response]]

SEGMENTS_MAX = 12
"""Most segments (parts between slashes) of a path. A longer path raises a 400.

The longest route has six.
"""


class Extent(Enum):
    """The queues that an API token must cover for a route."""

    QUEUE = "queue"
    """The queue that the path names."""
    SEEN = "seen"
    """No particular queue: the answer shows the queues that the token covers."""
    ALL = "all"
    """Every queue, and data of no local queue: outgoing messages, metrics."""
    NOBODY = "nobody"
    """No queue: no API token is required.

    An orchestrator's probes carry no token, and the answer is one word.
    """


class Access(NamedTuple):
    """The permission that a route requires from its caller."""

    verb: Verb | Literal["any", "none"]
    """The verb that the API token must have: ``any`` accepts every token, ``none`` needs none."""
    extent: Extent
    default_verb: Verb | None = None
    """The verb in place of ``verb`` if the path names the consumer ``default``; ``None``: ``verb``.
    """


class ApiRoute(NamedTuple):
    """One route, such as ``GET /v1/queues/{queue}/range``, with its permission and its handler."""

    method: str
    path: str
    access: Access
    handler: Handler


def segments_of(raw_path: bytes) -> list[str]:
    """Return the percent-decoded segments of a raw path.

    ``private$`` and the segment after it become one segment. Raises a 400 if the path has more than
    SEGMENTS_MAX segments or is not UTF-8.
    """
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
    """Finds the route of a call in the table of all routes."""

    def __init__(self, routes: Iterable[ApiRoute]) -> None:
        self._routes = [(route, route.path.split("/")[1:]) for route in routes]

    def find(self, method: str, raw_path: bytes) -> tuple[ApiRoute, dict[str, str]]:
        """Return the route of a call, and the parameters of its path by name.

        A HEAD finds the route of GET. Raises a 404 for an unknown path, a 405 if the path exists
        for another method, and the errors of :func:`segments_of`.
        """
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
