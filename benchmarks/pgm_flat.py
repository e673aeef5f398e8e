"""Measure the memory of one long multicast session with 1 % loss.

    make flat-pgm MINUTES=10

One veth pair carries 500 KB/s. The window is a minute (30 MB), so that it fills and moves many
times. The figure is resident memory of both sides from three windows on: its highest value in the
second half may be GROWTH_MAX times that of the first. All messages must arrive. Without nftables
nothing is lost in transit. The last line is one JSON object. Exit code 1: memory grew, or something
is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import say
from tests.kit.pgm import interop
from tests.kit.pgm.interop import Case, ours
from tests.kit.pgm.two_hosts import HERE, THERE, TwoHosts, inside, is_inside, may_unshare

SAMPLES = 120
RATE = 500_000.0
"""Data rate in octets a second."""
WINDOW_SECONDS = 60.0
WINDOWS_BEFORE = 3
"""Windows before the first sample.

By then the window is full and the allocator's memory has its final size.
"""
GROWTH_MAX = 1.05
SIZE = 8_000


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")), 0)


def is_flat(kib: Sequence[int]) -> bool:
    """Return whether the second half stays within GROWTH_MAX times the first."""
    half = len(kib) // 2
    return half > 0 and max(kib[half:]) <= GROWTH_MAX * max(kib[:half])


def session(hosts: TwoHosts, minutes: float) -> dict[str, Any]:
    """Run one session of ``minutes`` and return the result."""
    seconds = minutes * 60
    window = min(WINDOW_SECONDS, seconds / (2 * WINDOWS_BEFORE))
    case = Case("udp", "send", SIZE, "1 %" if shutil.which("nft") else "none")
    hosts.lose(case.loss, case.udp_port, interop.GROUP)
    count = int(seconds * RATE / SIZE)
    receiver = subprocess.Popen(
        [*hosts.there(), *ours("recv", case, THERE, "--idle", "10")],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(interop.HEAD_START)
    limits = ("--rate", str(RATE), "--window", str(window), "--linger", "5")
    sender = subprocess.Popen(
        ours("send", case, HERE, "--count", str(count), "--size", str(SIZE), *limits),
        stdout=subprocess.PIPE,
        text=True,
    )
    began, samples = time.monotonic(), []
    while sender.poll() is None and receiver.poll() is None:
        time.sleep(seconds / SAMPLES)
        both = resident_kib(sender.pid), resident_kib(receiver.pid)
        say(
            f"{time.monotonic() - began:7.1f} s, KiB resident: sender {both[0]}, receiver {both[1]}"
        )
        if time.monotonic() - began > WINDOWS_BEFORE * window and all(both):
            samples.append(both)
    got = json.loads(receiver.communicate()[0].splitlines()[-1])
    # The sender lingers and prints its own result, which is not needed.
    sender.communicate()
    sides = (
        dict(zip(("send", "receive"), zip(*samples, strict=True), strict=True)) if samples else {}
    )
    return {
        "minutes": minutes,
        "window_seconds": window,
        "loss": case.loss,
        "received": got["msgs"],
        "of": count,
        "lost_packets": got["lost_packets"],
        "repaired_packets": got["packets"]["rdata"],
        **{
            f"{side}_kib": {"first": kib[0], "last": kib[-1], "most": max(kib)}
            for side, kib in sides.items()
        },
        "flat": len(sides) == 2 and all(is_flat(kib) for kib in sides.values()),
    }


def main() -> int:
    """Run the session.

    Return 1 if memory grew or something is missing, 2 if the machine cannot run it.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    if not is_inside():
        if not may_unshare():
            say("flat-pgm: this kernel allows no user namespaces (unshare -rn): run it as root")
            return 2
        return subprocess.run(
            inside([sys.executable, "-m", "benchmarks.pgm_flat", *sys.argv[1:]]), check=False
        ).returncode
    with TwoHosts() as hosts:
        found = session(hosts, minutes)
    print(json.dumps(found), flush=True)
    return 0 if found["flat"] and found["received"] == found["of"] else 1


if __name__ == "__main__":
    sys.exit(main())
