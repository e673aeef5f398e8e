"""Report what a restore found, lost, or cannot know: one line for each range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Finding = Literal["restored", "lost", "may_be_lost", "in_doubt", "known", "damaged", "do"]
"""Kind of a line.

``restored``: it is in the new data directory. ``lost``: it existed, and Delta does not have it.
``may_be_lost``: it may have arrived after Delta was written last; the restore cannot know that.
``in_doubt``: it is in the new data directory, and the peer may have it, too. ``known``: what the
restore knows about a possible loss, with its reason. ``damaged``: it was unreadable when the backup
was made. ``do``: what the operator must do next.
"""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of the report."""

    finding: Finding
    what: str
    """Kind of object: ``queue_manager``, ``rows``, ``identifiers``, ``incoming_stream``,
    ``outgoing``, ``consumer`` …
    """
    name: str
    """Name of the queue, stream or destination."""
    first: int | None
    """First of a range of sequences (rows) or of stream positions; ``None`` without a range."""
    last: int | None
    count: int | None
    """Number of objects; ``None`` if it is unknown."""
    detail: str
    """Explanation of the line for an operator."""
    more: dict[str, object]
    """Further keys of the JSON object."""

    def as_dict(self) -> dict[str, object]:
        """Return the line as the JSON object that is printed."""
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
    """Passes each line of the report to a function as soon as the line is known."""

    def __init__(self, tell: Callable[[ReportLine], object]) -> None:
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
        """Make one line of the report, and pass it on.

        The arguments are the fields of :class:`ReportLine`; ``more`` are further keys. ``count`` of
        a range defaults to the length of the range. For ``may_be_lost`` there is no default.
        """
        if count is None and first is not None and last is not None and finding != "may_be_lost":
            count = last - first + 1
        self._tell(ReportLine(finding, what, name, first, last, count, detail, more))
