"""The two things every test here starts with."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta_state_kit import MemoryLog, State


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()
