"""The lookup of all transition tables: the next state, or an error that names what cannot happen."""

from __future__ import annotations

from enum import Enum, auto

import pytest

from srmp_spark.errors import LocalProtocolError
from srmp_spark.transitions import next_state


class Door(Enum):
    OPEN = auto()
    SHUT = auto()


class Push(Enum):
    IN = auto()
    OUT = auto()


TABLE = {(Door.SHUT, Push.IN): Door.OPEN, (Door.OPEN, Push.OUT): Door.SHUT}


def test_the_next_state_is_that_of_the_table() -> None:
    assert next_state(TABLE, Door.SHUT, Push.IN, "a door") is Door.OPEN
    assert next_state(TABLE, Door.OPEN, Push.OUT, "a door") is Door.SHUT


def test_a_pair_that_the_table_lacks_is_an_error_that_names_it() -> None:
    with pytest.raises(LocalProtocolError, match="OUT cannot happen to a door that is SHUT"):
        next_state(TABLE, Door.SHUT, Push.OUT, "a door")
