"""Write times as the JSON of the API shows them: RFC 3339 in UTC (INTERFACE.md section 1)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rfc3339(microseconds: int | None) -> str | None:
    """Format microseconds since 1970 as ``2026-11-21T02:37:19.000000Z`` (UTC).

    Return ``None`` for ``None``.
    """
    if microseconds is None:
        return None
    return (
        (_EPOCH + timedelta(microseconds=microseconds))
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )
