"""The status of one sequence of this queue manager, for ``status.outgoing``.

INTERFACE.md section 3 defines it.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.wsrm.codec.elements import ABSENT
from srmp_spark.wsrm.sending.polling_states import PollingState
from srmp_spark.wsrm.sending.source import RmSource


def status_of(source: RmSource | None, *, is_lost: bool) -> dict[str, Any]:
    """Return the status of a sequence; ``source`` is ``None`` if there is no sequence.

    ``is_lost`` states that the destination no longer knew the sequence, and that an operator must
    decide.
    """
    if source is None:
        return {
            "sequence": None,
            "state": "lost" if is_lost else "none",
            "numbered": 0,
            "in_flight": 0,
            "buffer_remaining": None,
            "polling": False,
        }
    remaining = source.polling.buffer_remaining
    return {
        "sequence": source.identifier or None,
        "state": source.state.name.lower(),
        "numbered": source.assigned,
        "in_flight": len(source.in_flight),
        "buffer_remaining": None if remaining == ABSENT else remaining,
        "polling": source.polling.state is PollingState.POLLING,
    }
