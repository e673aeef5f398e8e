"""Measure incoming reliable sessions, compared with Apache CXF's own service.

A CXF client (RM 1.1, one-way, 1 KB) sends to our queue manager, and to CXF's own service. The
server runs on core 0, the client on core 1. A sequence of CXF has one message in flight. With one
sequence the time of an acknowledgement counts; with eight, the capacity of the server's core
counts. Ours acknowledges a message when it is synced; CXF's service has no store and discards a
line for each message. Each run is a fresh client that sends 500 messages a sequence to warm up. The
clock ends when everything is acknowledged. Afterwards each message must be a row. Without CXF the
client is ours: a second queue manager, which has each number on the disk before the message is
sent.
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
"""Number of sequences → messages of each sequence that are timed."""
WARM = 500


@dataclass(slots=True)
class Rounds:
    """The results of the rounds with one number of sequences."""

    mine: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    """CPU microseconds of the server for each message."""
    other: list[float] = field(default_factory=list)

    def figure(self, name: str, missing: NotHere | None) -> Figure:
        """Return the figure of these rounds.

        ``missing`` says why CXF did not run; then our client was the sender.
        """
        reference = NotHere(f"{missing}; the client is ours") if missing else self.other
        note = f"{median(self.cpu_us):.0f} us of CPU a message in the server"
        return beside(
            name, "messages/s", self.mine, reference, "CXF service", at_least=0.5, note=note
        )


def counted(found: Rounds, service: OwnService, messages: int, send: Callable[[], float]) -> None:
    """Add the rate of ``send`` and the server's CPU for each message.

    Raises :class:`RuntimeError` if a message is not a row.
    """
    group, before = service.server.process.pid, service.rows()
    used = cpu_seconds(group)
    found.mine.append(send())
    if service.rows() - before != messages:
        raise RuntimeError(f"{service.rows() - before} rows of {messages} messages")
    found.cpu_us.append((cpu_seconds(group) - used) / messages * 1e6)


def alone(plan: Plan, folder: Path) -> dict[int, Rounds]:
    """Measure our client with our server.

    Each sequence has a queue of its own, which no earlier sequence used.
    """
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
    """Measure CXF's client with our server and with CXF's, with fresh processes for each run."""
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
