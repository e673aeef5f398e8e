"""Measure the goodput of our PGM, compared with OpenPGM's, over one veth pair.

    python -m benchmarks --only pgm
    # the same without the table; --raw: over IP protocol 113
    python -m benchmarks.pgm [--rounds 5] [--raw]

The messages have 1 KB and 8 KB, without loss and with 1 %, over UDP. No root is needed: the
benchmark uses network namespaces of its own (``unshare -rn``). PGM does not slow a source down when
receivers are slow. So each side first looks for its own rate: from the top of :data:`RATES` down
while not every APDU arrives, and further while goodput grows. Then each round runs both sides at
their rates, one after the other. Goodput is what the receiver counts, and only in runs in which
every APDU arrived in order and whole.

NAK_BO_IVL (50 ms), NAK_RPT_IVL and NAK_RDATA_IVL (200 ms) are the same on both sides; only ours
waits up to 60 ms with RDATA (2.1.3.1). CPU is that of a whole process for each packet of new data,
including repairs, start and idle time. It can be compared on a busy machine; rates cannot.

Where OpenPGM or the namespaces are missing, ours runs alone over loopback, its receiver drops the 1
%, and nothing is judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.common import Figure, NotHere, Plan, beside, median, need, say
from tests.kit.pgm import interop, openpgm
from tests.kit.pgm.interop import Case, Outcome, ours, run_both, theirs
from tests.kit.pgm.two_hosts import (
    HERE,
    THERE,
    TOOLS,
    TwoHosts,
    inside,
    is_inside,
    may_unshare,
)

RATES = (150e6, 120e6, 100e6, 80e6, 65e6, 50e6, 40e6, 30e6, 20e6, 10e6, 5e6)
"""Rates to try, in octets a second."""
GROWTH = 1.05
"""Factor by which a lower rate must increase goodput for the search to continue."""
PACKET = 1_428
"""Octets of an APDU in a packet of Ethernet's size, the smaller value of both sides."""
LOOPBACK = "127.0.0.1"
LOSSES = {"": "none", "_loss": "1 %"}
SHARES = {"none": 0.0, "1 %": 0.01}
SIZES = {"1k": 1_000, "8k": 8_000}
TARGET = 0.5
SECONDS, PROBE_SECONDS, QUICK_SECONDS = 3.0, 1.0, 0.2
"""Seconds of data at the rate of a run.

The first is for a round, the second for the search of a rate, the third for ``--quick``.
"""
QUICK_RATES = (5e6, 1e6)
"""Rates of a quick run in octets a second. Nearly every machine keeps up with the first."""
QUICK_LINGER = "3"
"""Seconds of repairs after the data of a quick run. On a busy machine repairs come late."""
RUN_SECONDS_MAX = 20.0
"""Longest run in seconds.

A run at a rate that a side cannot keep up with is ended, because repairs of repairs may take
minutes.
"""
WINDOW = "2"
"""Seconds that our source can repair.

The default is a minute. 3 s at 100 MB/s fill the memory that a window may have, and the source then
waits. OpenPGM's window here is 60,000 packets, less than a second.
"""
WHO = ("openpgm", "ours")


class Run(NamedTuple):
    """The values of a run in which everything arrived."""

    mbps: float
    send_us: float
    """CPU microseconds of the sender for each packet."""
    receive_us: float


class Loopback:
    """Stands for :class:`TwoHosts` on one host: multicast over loopback.

    Our receiver drops the packets that shall be lost.
    """

    def there(self) -> list[str]:
        return []

    def lose(self, *_: object) -> None:
        """Do nothing: the receiver drops the packets (:func:`one`)."""


Hosts = TwoHosts | Loopback


def one(hosts: Hosts, who: str, case: Case, rate: float, seconds: float) -> Outcome:
    """Run one side at one rate, and return the outcome."""
    hosts.lose(case.loss, case.udp_port, interop.GROUP)
    count = max(100, int(rate * seconds / case.size))
    here, there = (LOOPBACK, LOOPBACK) if isinstance(hosts, Loopback) else (HERE, THERE)
    if who == "ours":
        sizes = ("--count", str(count), "--size", str(case.size), "--rate", str(rate))
        repairs = (
            ("--linger", QUICK_LINGER)
            if seconds == QUICK_SECONDS
            else ("--linger", "2.5", "--window", WINDOW)
        )
        sending = ours("send", case, here, *sizes, *repairs)
        lost = ("--lose", str(SHARES[case.loss])) if isinstance(hosts, Loopback) else ()
        receiving = ours(
            "recv", case, there, "--idle", "3", "--nak-rpt", "0.2", "--nak-rdata", "0.2", *lost
        )
    else:
        buffers, window = ("--rcvbuf", "4194304"), ("--sndbuf", "4194304", "-w", "60000")
        receiving = theirs("recv", case, there, *buffers, "-x", "60000", "-T", "3000")
        sending = theirs(
            "send",
            case,
            here,
            *window,
            "-s",
            str(case.size),
            "-c",
            str(count),
            "-r",
            str(int(rate)),
            "-L",
            "2500",
        )
    return run_both([*hosts.there(), *receiving], sending, seconds=RUN_SECONDS_MAX)


def whole(hosts: Hosts, who: str, case: Case, rate: float, seconds: float) -> Run | None:
    """Run one side once, and return its values, or ``None`` if something did not arrive."""
    try:
        outcome = one(hosts, who, case, rate, seconds)
    except (RuntimeError, subprocess.SubprocessError) as error:
        say(f"  {who} at {rate / 1e6:g} MB/s: {str(error)[:200]}")
        return None
    if outcome.problem is not None:
        say(f"  {who} at {rate / 1e6:g} MB/s: {outcome.problem}")
        return None
    packets = -(-case.size // PACKET)

    def cpu(summary: dict[str, Any]) -> float:
        return float((summary["cpu_user"] + summary["cpu_sys"]) / summary["msgs"] / packets * 1e6)

    run = Run(outcome.received["MBps"], cpu(outcome.sent), cpu(outcome.received))
    say(
        f"  {who} at {rate / 1e6:g} MB/s: {run.mbps:.1f} MB/s, CPU {run.send_us:.1f} and "
        f"{run.receive_us:.1f} us a packet"
    )
    return run


def best_rate(
    hosts: Hosts, who: str, case: Case, seconds: float, rates: Sequence[float] = RATES
) -> float | None:
    """Return the rate with the highest goodput; ``None`` if at no rate everything arrives."""
    best: tuple[float, float] | None = None
    for rate in rates:
        run = whole(hosts, who, case, rate, seconds)
        if best is not None and (run is None or run.mbps < best[0] * GROWTH):
            break
        if run is not None:
            best = (run.mbps, rate)
    return None if best is None else best[1]


def measured(hosts: TwoHosts, case: Case, rounds: int, seconds: float) -> dict[str, list[Run]]:
    """Return the rounds in which both sides transferred everything.

    A side that failed uses the next lower rate in the next round.
    """
    tried = QUICK_RATES if seconds == QUICK_SECONDS else RATES
    rates = {who: best_rate(hosts, who, case, min(seconds, PROBE_SECONDS), tried) for who in WHO}
    found: dict[str, list[Run]] = {who: [] for who in WHO}
    for number in range(2 * rounds):
        if None in rates.values() or len(found["ours"]) == rounds:
            break
        runs = {
            who: whole(hosts, who, case, rate, seconds)
            for who, rate in rates.items()
            if rate is not None
        }
        for who, run in runs.items():
            if run is None:
                rates[who] = next((rate for rate in RATES if rate < (rates[who] or 0.0)), None)
        if None not in runs.values():
            for who, run in runs.items():
                found[who] += [run] if run is not None else []
            say(f"{case}: round {number + 1}")
    return found


def alone(case: Case, plan: Plan) -> list[Run]:
    """Return our rounds over loopback.

    A quick run uses the first rate of :data:`QUICK_RATES` that the machine keeps up with.
    """
    hosts = Loopback()
    if plan.quick:
        runs = (whole(hosts, "ours", case, rate, QUICK_SECONDS) for rate in QUICK_RATES)
        first = next((run for run in runs if run is not None), None)
        return [] if first is None else [first]
    rate = best_rate(hosts, "ours", case, PROBE_SECONDS)
    rounds = (
        [whole(hosts, "ours", case, rate, SECONDS) for _ in range(plan.rounds)]
        if rate is not None
        else []
    )
    return [run for run in rounds if run is not None]


def collect(rounds: int, *, quick: bool, pgm: str = "udp") -> dict[str, dict[str, list[Run]]]:
    """Run every case. The caller is inside the namespace."""
    with TwoHosts() as hosts:
        seconds = QUICK_SECONDS if quick else SECONDS
        return {name: measured(hosts, case, rounds, seconds) for name, case in cases(pgm).items()}


def cases(pgm: str = "udp") -> dict[str, Case]:
    """Return the name of each of the four figures, and its case."""
    return {
        f"pgm_{size}{loss}": Case(pgm, "send", SIZES[size], LOSSES[loss])
        for size in SIZES
        for loss in LOSSES
    }


def figure(name: str, found: Mapping[str, Sequence[Sequence[float]] | NotHere]) -> Figure:
    """Return the figure in MB/s, compared with OpenPGM's where it ran."""
    both = {
        who: runs if isinstance(runs, NotHere) else [Run(*each) for each in runs]
        for who, runs in found.items()
    }
    mine, other = both["ours"], both["openpgm"]
    assert isinstance(mine, list)
    if not mine:
        return Figure(
            name=name,
            value=None,
            unit="MB/s",
            ok=False,
            note="a side had no rate at which everything arrived",
        )

    def cpu(runs: list[Run]) -> str:
        return (
            f"{median([each.send_us for each in runs]):.1f} and "
            f"{median([each.receive_us for each in runs]):.1f} us"
        )

    note = f"CPU a packet of new data, sending and receiving: {cpu(mine)}"
    if isinstance(other, list):
        note += f"; OpenPGM {cpu(other)}"
    theirs = other if isinstance(other, NotHere) else [each.mbps for each in other]
    return beside(
        name, "MB/s", [each.mbps for each in mine], theirs, "OpenPGM", at_least=TARGET, note=note
    )


def has_openpgm() -> bool:
    """Return ``True`` if both sides can run here.

    Raises :class:`NotHere` with the reason if they cannot.
    """
    for tool in TOOLS:
        need(tool)
    if openpgm.flags() is None:
        raise NotHere(f"OpenPGM is missing: apt-get install {openpgm.PACKAGES}")
    if not may_unshare():
        raise NotHere("this kernel allows no user namespaces (unshare -rn): run it as root")
    openpgm.build()
    return True


def run(plan: Plan) -> Iterator[Figure]:
    """Yield the figures for ``python -m benchmarks``."""
    missing = plan.peer("OpenPGM", has_openpgm)
    if isinstance(missing, NotHere):
        why = NotHere(f"{missing}; ours over loopback")
        for name, case in cases().items():
            yield figure(name, {"ours": alone(case, plan), "openpgm": why})
        return
    again = [
        sys.executable,
        "-m",
        "benchmarks.pgm",
        "--rounds",
        str(plan.rounds),
        *(["--quick"] if plan.quick else []),
    ]
    done = subprocess.run(inside(again), stdout=subprocess.PIPE, text=True, check=True)
    for name, found in json.loads(done.stdout.splitlines()[-1]).items():
        yield figure(name, found)


def main() -> int:
    """Print the runs as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    openpgm.build()
    if not is_inside():
        return subprocess.run(
            inside([sys.executable, "-m", "benchmarks.pgm", *sys.argv[1:]]), check=False
        ).returncode
    print(json.dumps(collect(args.rounds, quick=args.quick, pgm="raw" if args.raw else "udp")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
