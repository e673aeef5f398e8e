"""Reliable sessions out: rows for ``wsrm:URL`` (RM 1.1, one-way, 1 KB) to CXF's service, beside CXF's own client to the same.

The service on core 0, whoever sends on core 1: our queue manager with its sender process, or CXF's client. Both have one
sequence with one message on the wire at a time. Ours has each number on the disk before it leaves and each acknowledgement
after it came; CXF's client keeps nothing. Both are warmed up by 500 messages; then ours is from the end of a hold until
everything is acknowledged, CXF's from the first call until everything is acknowledged. Without CXF the service is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.common import Figure, NotHere, Plan, beside, load, need_cores, say, scratch
from benchmarks.wsrm_sides import BUFFER, CxfService, OwnClient, OwnService, cxf, cxf_client

ROWS = 5_000
WARM = 500


def ours(folder: Path, service: CxfService | OwnService, rows: int, warm: int) -> float:
    """Messages a second."""
    with closing(service), closing(OwnClient(folder)) as client:
        return client.send([service.url], rows, warm)


def theirs(folder: Path, rows: int, warm: int) -> float:
    """Messages a second."""
    with closing(CxfService(folder)) as service:
        return cxf_client(service.url, 1, rows, warm)


def run(plan: Plan) -> Iterator[Figure]:
    need_cores(plan)
    missing = plan.peer("Apache CXF", lambda: cxf(plan))
    alone = isinstance(missing, NotHere)
    rows, warm = plan.size(ROWS, 300), plan.size(WARM, 50)
    if alone:
        rows = min(rows, BUFFER - warm)  # of our service: nobody receives what it delivers
    mine: list[float] = []
    other: list[float] = []
    with scratch("wsrm-out") as folder:
        for number in range(plan.rounds):
            service = OwnService(folder / f"service{number}") if alone else CxfService(folder)
            mine.append(ours(folder / str(number), service, rows, warm))
            if not alone:
                other.append(theirs(folder, rows, warm))
            beside_it = "" if alone else f"CXF's client {other[-1]:,.0f}/s; "
            say(f"wsrm_out {number + 1}/{plan.rounds}: {mine[-1]:,.0f}/s; {beside_it}load {load()}")
    reference = NotHere(f"{missing}; the service is ours") if alone else other
    yield beside("wsrm_out", "messages/s", mine, reference, "CXF client", at_least=0.5)
