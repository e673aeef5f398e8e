"""The two things every test here starts with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parents[1] / "store")
)  # store_kit: a data directory driven by hand
sys.path.insert(
    0, str(Path(__file__).parents[1] / "outbox")
)  # outbox_kit: an outbox and its engine

from delta_state_kit import MemoryLog, State  # found beside this file


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()
