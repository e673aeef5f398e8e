"""Look up a transition table: the one place that turns a state and an event into the next state.

A table maps (state, event) to the next state, or to a tuple that begins with it. A pair that the
table does not have is a bug of this package and never the fault of a peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from srmp_spark.errors import LocalProtocolError

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)
Next = TypeVar("Next")


def next_state(
    transitions: Mapping[tuple[State, Event], Next], state: State, event: Event, what: object
) -> Next:
    """Return the entry of ``transitions`` for ``event`` in ``state``.

    ``what`` has the state: a noun such as ``a session``, or the object itself. Raises
    :class:`LocalProtocolError`, which names ``what``, if the event cannot happen in the state.
    """
    found = transitions.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen to {what} that is {state.name}")
    return found
