"""Times as JSON shows them: RFC 3339, UTC (INTERFACE.md section 1)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rfc3339(microseconds: int | None) -> str | None:
    """Microseconds since 1970, UTC, as ``2026-11-21T02:37:19.000000Z``."""
    if microseconds is None:
        return None
    return (
        (_EPOCH + timedelta(microseconds=microseconds))
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )
