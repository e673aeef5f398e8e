"""Reliable sessions in: a CXF client (RM 1.1, one-way, 1 KB) sends to our queue manager, and to CXF's own service.

Server on core 0, client on core 1. A sequence of CXF has one message on the wire: with one sequence the time of an
acknowledgement counts, with eight our part is what the server's core can do. Ours acknowledges what is synced; CXF's service
has no store and writes a line for each message to nowhere. Each run is a fresh client, warmed up by 500 messages a sequence;
the clock ends when everything is acknowledged. Afterwards each message must be a row. Without CXF the client is ours: a second
queue manager, which has each number on the disk before it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Figure, NotHere, Plan, beside, cpu_seconds, load, median, need_cores, say, scratch
from benchmarks.wsrm_sides import CxfService, OwnService, cxf, cxf_client, own_client

COUNTS = {1: 3_000, 8: 1_500}
"""Messages of each sequence that are timed, by the number of sequences."""
WARM = 500


def ours(folder: Path, sequences: int, count: int, warm: int, *, own: bool) -> tuple[float, float]:
    """Rate, and microseconds of CPU a message. ``own``: the client is ours, and each sequence has a queue."""
    service = OwnService(folder / "server", sequences if own else 1)
    try:
        used = cpu_seconds(service.server.process.pid)
        if own:
            rate = own_client(folder / "client", service.urls, count, warm)
        else:
            rate = cxf_client(service.url, sequences, count, warm)
        messages = sequences * (count + warm)
        if service.rows() != messages:
            raise RuntimeError(f"{service.rows()} rows of {messages} messages")
        return rate, (cpu_seconds(service.server.process.pid) - used) / messages * 1e6
    finally:
        service.close()


def theirs(folder: Path, sequences: int, count: int, warm: int) -> float:
    """Messages a second of CXF's service."""
    service = CxfService(folder)
    try:
        return cxf_client(service.url, sequences, count, warm)
    finally:
        service.close()


def run(plan: Plan) -> Iterator[Figure]:
    need_cores(plan)
    missing = plan.peer("Apache CXF", lambda: cxf(plan))
    alone = isinstance(missing, NotHere)
    with scratch("wsrm-in") as folder:
        for sequences, full in COUNTS.items():
            count, warm = plan.size(full, 50), plan.size(WARM, 10)
            mine: list[float] = []
            cpu: list[float] = []
            other: list[float] = []
            for number in range(plan.rounds):
                round_folder = folder / f"{sequences}-{number}"
                round_folder.mkdir()
                rate, used = ours(round_folder, sequences, count, warm, own=alone)
                mine.append(rate)
                cpu.append(used)
                if not alone:
                    other.append(theirs(folder, sequences, count, warm))
                beside_it = "" if alone else f"CXF {other[-1]:,.0f}/s; "
                say(
                    f"wsrm_in {sequences} {number + 1}/{plan.rounds}: {mine[-1]:,.0f}/s, {cpu[-1]:.0f} us of CPU; "
                    f"{beside_it}load {load()}"
                )
            reference = NotHere(f"{missing}; the client is ours") if alone else other
            note = f"{median(cpu):.0f} us of CPU a message in the server"
            yield beside(f"wsrm_in_{sequences}", "messages/s", mine, reference, "CXF service", at_least=0.5, note=note)
