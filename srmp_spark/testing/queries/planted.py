"""Planted bugs: repairs of the reader, taken out again, to show that the model finds what they repaired."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Plant = Callable[[contextlib.ExitStack], None]

PLANTS: dict[str, Plant] = {}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Take the repair ``name`` out."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            PLANTS[name](stack)
        yield
