"""Our PGM and others' on one wire: OpenPGM's ``pgmpeer``, libzmq, and tshark as the judge of our packets.

    make interop-pgm                                        # all of it, some minutes; needs no root
    python -m tests.kit.pgm.interop --case raw send 5000 "5 %"

Each case is one encapsulation, one direction, one size and one way to lose packets. It holds if every APDU arrives, in order,
with its content. The last line says how many did.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.kit.pgm import openpgm
from tests.kit.pgm.two_hosts import (
    HERE,
    RULES,
    THERE,
    TwoHosts,
    inside,
    is_inside,
    may_unshare,
    missing_tools,
)

GROUP, PORT, UDP_PORT = "239.192.9.1", 7500, 3055
OURS = [sys.executable, "-m", "tests.kit.pgm.peer"]
SIZES = (100, 1_000, 5_000, 20_000)
COUNTS = {100: 400, 1_000: 300, 5_000: 120, 20_000: 40}
RATE = 1_400_000
"""Octets a second. From 1.5 MB/s on OpenPGM's bucket is 1 ms of the rate, and it never sends an APDU that is larger."""
RUN_SECONDS = 60.0
HEAD_START = 0.6
"""Until a receiver hears: OpenPGM's asks for nothing that was sent before."""


class Case(NamedTuple):
    """One run."""

    pgm: str
    """``raw`` or ``udp``."""
    direction: str
    """``send``: we do."""
    size: int
    loss: str

    def __str__(self) -> str:
        return (
            f"{self.pgm}, we {'send' if self.direction == 'send' else 'receive'}, "
            f"{self.size} octets, {self.loss}"
        )

    @property
    def udp_port(self) -> int | None:
        """The port of UDP encapsulation."""
        return UDP_PORT if self.pgm == "udp" else None


ALL = tuple(Case(*each) for each in product(("raw", "udp"), ("send", "recv"), SIZES, RULES))


class Outcome(NamedTuple):
    """What both sides said."""

    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def problem(self) -> str | None:
        """What is wrong; ``None``: every APDU came, in order, whole."""
        sent, got = self.sent, self.received
        wrong = {
            name: got[name]
            for name in ("gaps", "bad", "missing", "resets", "lost_packets")
            if got.get(name)
        }
        if got["msgs"] != sent["msgs"]:
            wrong["received"] = f"{got['msgs']} of {sent['msgs']}"
        return None if not wrong else ", ".join(f"{name} {value}" for name, value in wrong.items())


def ours(role: str, case: Case, at: str, *more: str) -> list[str]:
    """Our peer's command."""
    encapsulation = "raw" if case.udp_port is None else f"udp:{case.udp_port}"
    return [
        *OURS,
        role,
        "--interface",
        at,
        "--address",
        f"{GROUP}:{PORT}",
        "--pgm",
        encapsulation,
        *more,
    ]


def theirs(role: str, case: Case, at: str, *more: str) -> list[str]:
    """OpenPGM's."""
    udp = [] if case.udp_port is None else ["-U", str(case.udp_port)]
    return [str(openpgm.build()), role, "-n", f"{at};{GROUP}", *udp, *more]


def run_both(receiving: list[str], sending: list[str], seconds: float = RUN_SECONDS) -> Outcome:
    """Start one, then the other; their summaries. Raises :class:`RuntimeError` if one of them has none, and
    :class:`subprocess.TimeoutExpired` if one of them runs on after ``seconds``."""
    with tempfile.TemporaryFile("w+") as errors:
        receiver = subprocess.Popen(receiving, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603
        try:
            if OURS[-1] in receiving:
                _until_ready(receiver, errors)
            time.sleep(HEAD_START)
            sender = subprocess.run(  # noqa: S603
                sending,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                check=False,
                timeout=seconds,
            )
            said, _ = receiver.communicate(timeout=seconds)
        finally:
            receiver.kill()
            receiver.wait()
        errors.seek(0)
        try:
            return Outcome(
                json.loads(sender.stdout.splitlines()[-1]), json.loads(said.splitlines()[-1])
            )
        except (IndexError, ValueError):
            codes = f"exit codes {sender.returncode} and {receiver.returncode}"
            raise RuntimeError(f"no summary, {codes}: {errors.read()[-2000:]}") from None


def _until_ready(receiver: subprocess.Popen[str], errors: IO[str]) -> None:
    """Until our receiver says that it hears: on a busy machine OpenPGM's sender was done before it was there."""
    end = time.monotonic() + RUN_SECONDS
    while time.monotonic() < end and receiver.poll() is None:
        if "ready" in Path(f"/proc/self/fd/{errors.fileno()}").read_text():
            return
        time.sleep(0.05)


def run_case(hosts: TwoHosts, case: Case) -> Outcome:
    """One run of the matrix: the receiver is over there, where packets are lost."""
    hosts.lose(case.loss, case.udp_port, GROUP)
    count, size, rate = str(COUNTS[case.size]), str(case.size), str(RATE)
    if case.direction == "send":
        receiving = theirs("recv", case, THERE, "-T", "5000")
        sending = ours("send", case, HERE, "--count", count, "--size", size, "--rate", rate)
    else:
        receiving = ours("recv", case, THERE)
        # Half of what is missing comes with each round of NAKs
        linger = "6000" if case.loss == "first RDATA" else "2500"
        sending = theirs("send", case, HERE, "-c", count, "-s", size, "-r", rate, "-L", linger)
    return run_both([*hosts.there(), *receiving], sending)


def run_profile(hosts: TwoHosts, direction: str) -> Outcome:
    """The constants of [MC-MQSRM] 2.1.3.1 on both sides: 70 KB/s, an SPM each 0.5 s; 5 % are lost."""
    case = Case("raw", direction, 20_000, "5 %")
    hosts.lose(case.loss, case.udp_port, GROUP)
    if direction == "send":
        times = [
            "--nak-bo",
            "50",
            "--nak-rpt",
            "750",
            "--nak-rdata",
            "2000",
            "--ncf-retries",
            "10",
            "--data-retries",
            "10",
        ]
        receiving = theirs("recv", case, THERE, "-T", "9000", *times)
        sending = ours("send", case, HERE, "--count", "25", "--size", "20000", "--linger", "8")
    else:
        receiving = ours(
            "recv", case, THERE, "--nak-rpt", "0.75", "--nak-rdata", "2", "--idle", "9"
        )
        beats = ["-W", "300", "-a", "500", "-H", "1000,2000,4000,8000,15000"]
        sending = theirs(
            "send", case, HERE, "-c", "25", "-s", "20000", "-r", "70000", "-L", "8000", *beats
        )
    return run_both([*hosts.there(), *receiving], sending)


def run_zmq(hosts: TwoHosts, pgm: str) -> str | None:
    """What a ZeroMQ publisher says comes to us; sent again by us, a ZeroMQ subscriber gets it. What is wrong, or ``None``."""
    hosts.lose("1 %", UDP_PORT if pgm == "udp" else None, GROUP)
    scheme, count = ("epgm" if pgm == "udp" else "pgm"), 200
    port = UDP_PORT if pgm == "udp" else PORT
    case = Case(pgm, "recv", 0, "1 %")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "apdus"
        keep = ["--address", f"{GROUP}:{port}", "--keep", str(kept), "--idle", "3"]
        receiver = subprocess.Popen(  # noqa: S603
            [*hosts.there(), *ours("recv", case, THERE, *keep)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        time.sleep(HEAD_START)
        publish = [
            openpgm.DEBIAN_PYTHON,
            str(openpgm.ZMQ_PUB),
            f"{scheme}://{HERE};{GROUP}:{port}",
            str(count),
            "300",
        ]
        subprocess.run(publish, capture_output=True, check=True, timeout=RUN_SECONDS)  # noqa: S603
        said = json.loads(receiver.communicate(timeout=RUN_SECONDS)[0].splitlines()[-1])
        if said["lost_packets"]:
            return f"{said['lost_packets']} packets of zmq are lost"
        octets = b"".join(bytes.fromhex(line) for line in kept.read_text().split())
        missing = [index for index in range(count) if b"%08d" % index not in octets]
        if missing:
            return (
                f"{len(missing)} of {count} messages of zmq did not come, the first is {missing[0]}"
            )
        subscribe = [
            *hosts.there(),
            openpgm.DEBIAN_PYTHON,
            str(openpgm.ZMQ_SUB),
            f"{scheme}://{THERE};{GROUP}:{port}",
        ]
        subscriber = subprocess.Popen(  # noqa: S603
            [*subscribe, str(count), "8000"], stdout=subprocess.PIPE, text=True
        )
        time.sleep(2 * HEAD_START)
        again = [
            "--address",
            f"{GROUP}:{port}",
            "--replay",
            str(kept),
            "--rate",
            "500000",
            "--linger",
            "3",
        ]
        subprocess.run(  # noqa: S603
            ours("send", case, HERE, *again), capture_output=True, check=True, timeout=RUN_SECONDS
        )
        heard, _ = subscriber.communicate(timeout=RUN_SECONDS)
    return (
        None
        if f"received {count} of {count}" in heard and "gap" not in heard
        else f"zmq says {heard.strip()[-200:]}"
    )


def run_tshark(hosts: TwoHosts, pgm: str) -> str | None:
    """A session of ours with losses, decoded by Wireshark: nothing malformed, checksums good. What is wrong, or ``None``."""
    case = Case(pgm, "send", 5_000, "every 10th")
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "session.pcapng"
        filter_ = f"udp port {UDP_PORT}" if pgm == "udp" else "ip proto 113"
        dump = ["tshark", "-q", "-i", "va", "-f", filter_, "-w", str(capture)]
        shark = subprocess.Popen(dump, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        end = time.monotonic() + 15
        while not capture.exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        run_case(hosts, case)
        time.sleep(1.0)
        shark.terminate()
        shark.wait()
        as_pgm = ["-d", f"udp.port=={UDP_PORT},pgm"] if pgm == "udp" else []
        fields = [
            part
            for name in (
                "pgm.hdr.type",
                "pgm.hdr.cksum.status",
                "_ws.malformed",
                "_ws.expert.severity",
            )
            for part in ("-e", name)
        ]
        decode = [
            "tshark",
            "-r",
            str(capture),
            *as_pgm,
            "-o",
            "pgm.check_checksum:TRUE",
            "-Y",
            "pgm",
            "-T",
            "fields",
            *fields,
        ]
        lines = subprocess.run(  # noqa: S603
            decode, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    rows = [(line.split("\t") + [""] * 4)[:4] for line in lines]
    kinds = {row[0] for row in rows}
    # Wireshark 4.0 writes the checksum itself into that field, too, and its verdict behind it.
    bad = [row for row in rows if row[1].split(",")[-1] not in ("1", "Good") or row[2]]
    wanted = {"0x00", "0x04", "0x05", "0x0a"}
    if not wanted <= kinds:
        return f"tshark saw only the types {sorted(kinds)} in {len(rows)} packets"
    return f"{len(bad)} of {len(rows)} packets, such as {bad[0]}" if bad else None


def main(arguments: list[str] | None = None) -> int:
    """Everything; 0 if all of it holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case",
        nargs=4,
        action="append",
        metavar=("raw|udp", "send|recv", "SIZE", "LOSS"),
        default=[],
    )
    args = parser.parse_args(arguments)
    lacking = missing_tools()
    if lacking or openpgm.flags() is None:
        print(
            f"interop-pgm: missing {', '.join(lacking) or 'libpgm'}: apt-get install "
            f"{openpgm.PACKAGES}",
            file=sys.stderr,
        )
        return 2
    if not is_inside():
        if not may_unshare():
            print(
                "interop-pgm: this kernel allows no user namespaces (unshare -rn): run it as root",
                file=sys.stderr,
            )
            return 2
        openpgm.build()
        given = sys.argv[1:] if arguments is None else arguments
        again = inside([sys.executable, "-m", "tests.kit.pgm.interop", *given])
        return subprocess.run(again, check=False).returncode  # noqa: S603
    cases = [
        Case(pgm, direction, int(size), loss) for pgm, direction, size, loss in args.case
    ] or list(ALL)
    failed = 0
    with TwoHosts() as hosts:
        for case in cases:
            began = time.monotonic()
            problem = _problem(lambda case=case: run_case(hosts, case).problem)
            failed += _told(str(case), problem, began)
        others = 0
        if not args.case:
            for name, work in _others(hosts):
                began = time.monotonic()
                others += 1
                failed += _told(name, _problem(work), began)
    print(f"{len(cases) + others - failed} of {len(cases) + others} hold")
    return 1 if failed else 0


def _others(hosts: TwoHosts) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [
        (
            f"constants of [MC-MQSRM] 2.1.3.1, we {word}",
            lambda direction=direction: run_profile(hosts, direction).problem,
        )
        for direction, word in (("send", "send"), ("recv", "receive"))
    ]
    if openpgm.has_zmq():
        found += [(f"libzmq, {pgm}", lambda pgm=pgm: run_zmq(hosts, pgm)) for pgm in ("raw", "udp")]
    else:
        print(
            "libzmq is missing, so it is NOT looked at: apt-get install libzmq5 python3-zmq",
            file=sys.stderr,
        )
    if shutil.which("tshark") is not None:
        found += [
            (f"tshark, {pgm}", lambda pgm=pgm: run_tshark(hosts, pgm)) for pgm in ("raw", "udp")
        ]
    else:
        print("tshark is missing, so it is NOT asked: apt-get install tshark", file=sys.stderr)
    return found


def _problem(work: Any) -> str | None:  # noqa: ANN401  # any of them
    try:
        found: str | None = work()
    except (RuntimeError, subprocess.SubprocessError) as error:
        return str(error)
    return found


def _told(name: str, problem: str | None, began: float) -> int:
    verdict, why = ("ok ", "") if problem is None else ("BAD", f": {problem}")
    print(f"{verdict} {time.monotonic() - began:5.1f} s  {name}{why}", flush=True)
    return problem is not None


if __name__ == "__main__":
    sys.exit(main())
