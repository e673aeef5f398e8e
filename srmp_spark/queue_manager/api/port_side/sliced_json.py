"""Write JSON answers with long lists in slices of the loop.

Writing a list of 10,000 queues at once would hold the loop for 40 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from srmp_spark.queue_manager.api.port_side.http import Response
from srmp_spark.queue_manager.slices import Work

ENTRIES_AT_ONCE = 50
"""Entries of a list that are written in one step, before other work may have its turn.

One step takes a fraction of a millisecond.
"""


async def sliced_json(value: Mapping[str, object], work: Work) -> Response:
    """Write ``value`` as JSON in slices, and return the answer.

    Other work has its turn between two parts of a list. The bytes equal those of
    :meth:`.Response.json`.
    """
    pieces: list[bytes] = []
    for key, each in value.items():
        pieces.append(b"," if pieces else b"{")
        pieces.append(_text(key) + b":")
        if isinstance(each, list):
            entries = iter(each)
            before = b"["
            while part := list(islice(entries, ENTRIES_AT_ONCE)):
                pieces.append(before + _text(part)[1:-1])
                before = b","
                await work.turn()
            pieces.append(b"]" if each else b"[]")
        else:
            pieces.append(_text(each))
    return Response(body=b"".join(pieces) + b"}\n" if pieces else b"{}\n")


def _text(value: Any) -> bytes:  # noqa: ANN401  # any value that json can write
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def parts_of(entries: list[Any]) -> Iterator[list[Any]]:
    """Yield a long list in parts. Work on one part takes a fraction of a slice of the loop."""
    size = ENTRIES_AT_ONCE * 20
    return (entries[at : at + size] for at in range(0, len(entries), size))
