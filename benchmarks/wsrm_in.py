"""Reliable sessions in: a CXF client (RM 1.1, one-way, 1 KB) sends to our queue manager, and to CXF's own service.

Server on core 0, client on core 1. A sequence of CXF has one message on the wire: with one sequence the time of an
acknowledgement counts, with eight our part is what the server's core can do. Ours acknowledges what is synced; CXF's service
has no store and writes a line for each message to nowhere. Each run is a fresh client, warmed up by 500 messages a sequence;
the clock ends when everything is acknowledged. Afterwards each message must be a row. Without CXF the client is ours: a second
queue manager, which has each number on the disk before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.common import (
    Figure,
    NotHere,
    Plan,
    beside,
    cpu_seconds,
    load,
    median,
    need_cores,
    say,
    scratch,
)
from benchmarks.wsrm_sides import CxfService, OwnClient, OwnService, cxf, cxf_client

COUNTS = {1: 3_000, 8: 1_500}
"""Messages of each sequence that are timed, by the number of sequences."""
WARM = 500


@dataclass(slots=True)
class Rounds:
    """What the rounds with one number of sequences gave."""

    mine: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    """Of the server, a message."""
    other: list[float] = field(default_factory=list)

    def figure(self, name: str, missing: NotHere | None) -> Figure:
        """Return the figure; ``missing``: our client sent, and nobody stood beside us."""
        reference = NotHere(f"{missing}; the client is ours") if missing else self.other
        note = f"{median(self.cpu_us):.0f} us of CPU a message in the server"
        return beside(
            name, "messages/s", self.mine, reference, "CXF service", at_least=0.5, note=note
        )


def counted(found: Rounds, service: OwnService, messages: int, send: Callable[[], float]) -> None:
    """Add the rate of ``send`` and the server's CPU a message; each message must be a row."""
    group, before = service.server.process.pid, service.rows()
    used = cpu_seconds(group)
    found.mine.append(send())
    if service.rows() - before != messages:
        raise RuntimeError(f"{service.rows() - before} rows of {messages} messages")
    found.cpu_us.append((cpu_seconds(group) - used) / messages * 1e6)


def alone(plan: Plan, folder: Path) -> dict[int, Rounds]:
    """Our client to our server: each sequence is one to a queue of its own, which no earlier one went to."""
    found = {sequences: Rounds() for sequences in COUNTS}
    for number in range(plan.rounds):
        base = folder / f"{number}"
        base.mkdir()
        with (
            closing(OwnService(base / "server", sum(COUNTS))) as service,
            closing(OwnClient(base / "client")) as client,
        ):
            urls = iter(service.urls)
            for sequences, full in COUNTS.items():
                count, warm = plan.size(full, 50), plan.size(WARM, 10)
                to = list(islice(urls, sequences))
                messages = sequences * (count + warm)
                counted(found[sequences], service, messages, partial(client.send, to, count, warm))
                say(
                    f"wsrm_in {sequences} {number + 1}/{plan.rounds}: "
                    f"{found[sequences].mine[-1]:,.0f}/s; load {load()}"
                )
    return found


def beside_cxf(plan: Plan, folder: Path) -> dict[int, Rounds]:
    """CXF's client to our server and to CXF's, each run with fresh ones."""
    found = {sequences: Rounds() for sequences in COUNTS}
    for sequences, full in COUNTS.items():
        count, warm = plan.size(full, 100), plan.size(WARM, 20)
        for number in range(plan.rounds):
            with closing(OwnService(folder / f"{sequences}-{number}")) as service:
                send = partial(cxf_client, service.url, sequences, count, warm)
                counted(found[sequences], service, sequences * (count + warm), send)
            with closing(CxfService(folder)) as other:
                found[sequences].other.append(cxf_client(other.url, sequences, count, warm))
            told = found[sequences]
            say(
                f"wsrm_in {sequences} {number + 1}/{plan.rounds}: {told.mine[-1]:,.0f}/s, "
                f"{told.cpu_us[-1]:.0f} us of CPU; "
                f"CXF {told.other[-1]:,.0f}/s; load {load()}"
            )
    return found


def run(plan: Plan) -> Iterator[Figure]:
    need_cores(plan)
    peer = plan.peer("Apache CXF", lambda: cxf(plan))
    missing = peer if isinstance(peer, NotHere) else None
    with scratch("wsrm-in") as folder:
        found = alone(plan, folder) if missing else beside_cxf(plan, folder)
    for sequences, rounds in found.items():
        yield rounds.figure(f"wsrm_in_{sequences}", missing)
