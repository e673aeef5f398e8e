"""Rows of the store that cannot be read at a start: they stay where they are, and everything else starts."""

from __future__ import annotations

from typing import NamedTuple


class SetAside(NamedTuple):
    """One row that was not loaded. Its bytes stay in its table, for a release that can read them."""

    table: str
    key: str
    """What names the row in its table."""
    reason: str
    """Why it cannot be read, in words for an operator."""
