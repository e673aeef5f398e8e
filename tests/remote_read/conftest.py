"""A queue manager that serves remote read; what tests share with those of the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from remote_kit import Served

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all modules of this folder; each test takes queues of its own."""
    with Served(
        tmp_path_factory.mktemp("qm") / "data", rpc_endpoint_mapper="127.0.0.1:0"
    ) as served:
        yield served


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Further ones; they are stopped at the end."""
    started: list[Served] = []

    def begin(name: str = "data", **options: object) -> Served:
        each = Served(tmp_path / name, **options)
        started.append(each)
        each.start()
        return each

    yield begin
    for each in started:
        each.stop()
