"""Measure outgoing reliable sessions, compared with Apache CXF's own client.

Rows for ``wsrm:URL`` (RM 1.1, one-way, 1 KB) are sent to CXF's service. The service runs on core 0,
the sender on core 1: our queue manager with its sender process, or CXF's client. Both use one
sequence with one message in flight at a time. Ours has each number on the disk before the message
is sent, and each acknowledgement after it arrived; CXF's client keeps nothing. 500 messages warm up
both. Our time is from the end of a hold until everything is acknowledged, CXF's from the first call
until everything is acknowledged. Without CXF the service is ours.
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
    """Return the messages a second that our sender reaches."""
    with closing(service), closing(OwnClient(folder)) as client:
        return client.send([service.url], rows, warm)


def theirs(folder: Path, rows: int, warm: int) -> float:
    """Return the messages a second that CXF's client reaches."""
    with closing(CxfService(folder)) as service:
        return cxf_client(service.url, 1, rows, warm)


def run(plan: Plan) -> Iterator[Figure]:
    need_cores(plan)
    missing = plan.peer("Apache CXF", lambda: cxf(plan))
    alone = isinstance(missing, NotHere)
    rows, warm = plan.size(ROWS, 300), plan.size(WARM, 50)
    if alone:
        # No consumer receives from our service, so its buffer must hold all messages.
        rows = min(rows, BUFFER - warm)
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
