"""What a restore found, lost, or cannot know: one line each, by range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Finding = Literal["restored", "lost", "may_be_lost", "in_doubt"]
"""``restored``: it is in the new data directory. ``lost``: it was, and Delta does not have it. ``may_be_lost``: it may have
come after Delta was written last; nobody here can know. ``in_doubt``: it is in the new data directory and may be at the peer
too."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report."""

    finding: Finding
    what: str
    """``queue_manager``, ``rows``, ``identifiers``, ``incoming_stream``, ``outgoing``, ``consumer`` …"""
    name: str
    """Of the queue, stream or destination."""
    first: int | None
    """Range of sequences (rows) or of positions in the stream; ``None`` where there is none."""
    last: int | None
    count: int | None
    """How many; ``None``: nobody knows."""
    detail: str
    """For people."""
    more: dict[str, Any]
    """Further keys of the JSON object."""

    def as_dict(self) -> dict[str, Any]:
        """As it is printed."""
        return {
            "finding": self.finding,
            "what": self.what,
            "name": self.name,
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "detail": self.detail,
        } | self.more


class Report:
    """Hands each line on as soon as it is known."""

    def __init__(self, tell: Callable[[Line], object]) -> None:
        self._tell = tell

    def add(
        self,
        finding: Finding,
        what: str,
        name: str,
        detail: str,
        *,
        first: int | None = None,
        last: int | None = None,
        count: int | None = None,
        **more: Any,  # noqa: ANN401  # JSON values
    ) -> None:
        """One line; ``count`` of a range is its length unless it is said."""
        if count is None and first is not None and last is not None and finding != "may_be_lost":
            count = last - first + 1
        self._tell(Line(finding, what, name, first, last, count, detail, more))
