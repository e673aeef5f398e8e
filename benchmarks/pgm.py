"""Goodput of our PGM beside OpenPGM's, over one veth pair, and the memory of a long session.

    python -m benchmarks.pgm [--runs 3] [--seconds 3]        # both, at 1 KB and 8 KB, without loss and with 1 %
    python -m benchmarks.pgm --flat 10                       # one session of ten minutes: resident memory of both sides

No root: it goes into network namespaces of its own (``unshare -rn``). A rate is tried from the top of :data:`RATES` down until
every APDU of every run arrives; goodput is what the receiver counts. CPU is that of a whole process per packet that it sent or
got, repairs and idle time among them. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from srmp_spark.testing.pgm import interop, openpgm
from srmp_spark.testing.pgm.interop import Case, Outcome, ours, run_both, theirs
from srmp_spark.testing.pgm.two_hosts import HERE, THERE, TwoHosts, inside, is_inside

RATES = (150e6, 120e6, 100e6, 80e6, 65e6, 50e6, 40e6, 30e6, 20e6, 10e6)
"""Octets a second."""
PACKET = 1_428
CASES = tuple((pgm, size, loss) for pgm in ("udp", "raw") for size in (1_000, 8_000) for loss in ("none", "1 %"))
FLAT_SAMPLES = 60
FLAT_RATE = 500_000.0
FLAT_WINDOW_SECONDS = 60


def one(hosts: TwoHosts, who: str, case: Case, rate: float, seconds: float) -> Outcome:
    """One run."""
    hosts.lose(case.loss, case.udp_port, interop.GROUP)
    count = int(rate * seconds / case.size)
    if who == "ours":
        sending = ours(
            "send", case, HERE, "--count", str(count), "--size", str(case.size), "--rate", str(rate), "--linger", "2.5"
        )
        receiving = ours("recv", case, THERE, "--idle", "3")
    else:
        buffers, window = ("--rcvbuf", "4194304"), ("--sndbuf", "4194304", "-w", "60000")
        receiving = theirs("recv", case, THERE, *buffers, "-x", "60000", "-T", "3000")
        sending = theirs(
            "send", case, HERE, *window, "-s", str(case.size), "-c", str(count), "-r", str(int(rate)), "-L", "2500"
        )
    return run_both([*hosts.there(), *receiving], sending)


def packets_of(size: int) -> int:
    """Packets of an APDU."""
    return 1 if size <= PACKET else -(-size // PACKET)


def measured(hosts: TwoHosts, who: str, case: Case, runs: int, seconds: float) -> dict[str, Any]:
    """The first rate from the top at which all runs are complete."""
    for rate in RATES:
        found = []
        for _ in range(runs):
            try:
                outcome = one(hosts, who, case, rate, seconds)
            except (RuntimeError, subprocess.SubprocessError):
                break
            if outcome.problem is not None:
                break
            found.append(outcome)
        if len(found) < runs:
            continue
        per = packets_of(case.size)

        def median(of: Any, found: list[Outcome] = found) -> float:  # a function
            return statistics.median(of(each) for each in found)

        def cpu(summary: dict[str, Any], per: int = per) -> float:
            return float((summary["cpu_user"] + summary["cpu_sys"]) / summary["msgs"] / per * 1e6)

        def rate_of(each: Outcome, per: int = per) -> float:
            return float(each.received["msgs"] * per / each.received["secs"])

        return {
            "rate": rate / 1e6, "MBps": round(median(lambda each: each.received["MBps"]), 1),
            "packets_per_second": round(median(rate_of)),
            "cpu_us_per_packet_send": round(median(lambda each: cpu(each.sent)), 1),
            "cpu_us_per_packet_receive": round(median(lambda each: cpu(each.received)), 1),
        }  # fmt: skip
    return {"rate": None, "MBps": 0.0}


def compare(hosts: TwoHosts, runs: int, seconds: float, only: list[str]) -> dict[str, Any]:
    """Both of us, case by case."""
    found: dict[str, Any] = {}
    for pgm, size, loss in CASES:
        if only and pgm not in only:
            continue
        case = Case(pgm, "send", size, loss)
        name = f"{pgm} {size} {loss}"
        found[name] = row = {who: measured(hosts, who, case, runs, seconds) for who in ("openpgm", "ours")}
        theirs_ = row["openpgm"]["MBps"]
        row["ratio"] = round(row["ours"]["MBps"] / theirs_, 2) if theirs_ else None
        print(f"{name:16} {json.dumps(row)}", flush=True)
    return found


def resident_kib(pid: int) -> int:
    """What a process has in memory; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")), 0)


def flat(hosts: TwoHosts, minutes: float) -> dict[str, Any]:
    """One session with 1 % loss, its window full after a minute: resident memory after that, of both sides."""
    case = Case("udp", "send", 8_000, "1 %")
    hosts.lose(case.loss, case.udp_port, interop.GROUP)
    count = int(minutes * 60 * FLAT_RATE / case.size)
    receiver = subprocess.Popen(
        [*hosts.there(), *ours("recv", case, THERE, "--idle", "5")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    time.sleep(1)
    window = ["--window", str(FLAT_WINDOW_SECONDS)]
    sender = subprocess.Popen(
        ours("send", case, HERE, "--count", str(count), "--size", "8000", "--rate", str(FLAT_RATE), *window),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    samples = []
    while sender.poll() is None:
        time.sleep(minutes * 60 / FLAT_SAMPLES)
        samples.append((resident_kib(sender.pid), resident_kib(receiver.pid)))
    got = json.loads(receiver.communicate()[0].splitlines()[-1])
    steady = [each for each in samples if all(each)][FLAT_SAMPLES // 3 :]
    columns = dict(zip(("send", "receive"), zip(*steady, strict=True), strict=True))
    return {
        "minutes": minutes, "received": got["msgs"], "of": count, "lost_packets": got["lost_packets"],
        **{f"{side}_kib": {"first": values[0], "last": values[-1], "most": max(values)} for side, values in columns.items()},
    }  # fmt: skip


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=("udp", "raw"), action="append", default=[])
    parser.add_argument("--flat", type=float, default=0.0, metavar="MINUTES")
    args = parser.parse_args()
    openpgm.build()
    if not is_inside():
        return subprocess.run(inside([sys.executable, "-m", "benchmarks.pgm", *sys.argv[1:]]), check=False).returncode
    with TwoHosts() as hosts, tempfile.TemporaryDirectory():
        result = flat(hosts, args.flat) if args.flat else compare(hosts, args.runs, args.seconds, args.only)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
