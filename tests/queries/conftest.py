"""The stores that schedules run in: opened once for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.queries.world import Stores


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    made = Stores()
    try:
        with made.inside():
            yield made
    finally:
        made.close()
