"""Interoperability of srmp-spark's PGM with OpenPGM's ``pgmpeer`` and libzmq, on one wire.

    make interop-pgm                                        # all of it, some minutes; needs no root
    python -m tests.kit.pgm.interop --case raw send 5000 "5 %"

Each case is one encapsulation, one direction, one size and one way to lose packets. A case holds if
every APDU arrives, in order, with its content. Wireshark's tshark checks the packets of srmp-spark.
The last line of the output states how many cases hold.
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
"""Send rate in octets a second.

Above 1.5 MB/s OpenPGM's token bucket holds 1 ms of the rate, and OpenPGM never sends an APDU that
is larger than the bucket.
"""
RUN_SECONDS = 60.0
HEAD_START = 0.6
"""Seconds between the start of the receiver and of the sender.

OpenPGM's receiver requests nothing that was sent before it joined.
"""


class Case(NamedTuple):
    """One combination of encapsulation, direction, APDU size in octets, and loss.

    ``loss`` is a name of :data:`.two_hosts.RULES`.
    """

    pgm: str
    """Encapsulation of the run: ``raw`` or ``udp``."""
    direction: str
    """``send``: srmp-spark sends. ``recv``: srmp-spark receives."""
    size: int
    loss: str

    def __str__(self) -> str:
        return (
            f"{self.pgm}, we {'send' if self.direction == 'send' else 'receive'}, "
            f"{self.size} octets, {self.loss}"
        )

    @property
    def udp_port(self) -> int | None:
        """Return the port of UDP encapsulation, or ``None`` for raw PGM."""
        return UDP_PORT if self.pgm == "udp" else None


ALL = tuple(Case(*each) for each in product(("raw", "udp"), ("send", "recv"), SIZES, RULES))


class Outcome(NamedTuple):
    """The JSON summaries that sender and receiver printed."""

    sent: dict[str, Any]
    received: dict[str, Any]

    @property
    def problem(self) -> str | None:
        """Return a text that says what is wrong.

        Return ``None`` if every APDU arrived whole and in order.
        """
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
    """Return the command that runs srmp-spark's peer in ``role`` on the interface ``at``.

    ``role`` is ``send`` or ``recv``; ``more`` are further arguments.
    """
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
    """Return the command that runs OpenPGM's ``pgmpeer`` in ``role`` on the interface ``at``.

    ``pgmpeer`` is built if needed. Raises :class:`RuntimeError` if OpenPGM is missing.
    """
    udp = [] if case.udp_port is None else ["-U", str(case.udp_port)]
    return [str(openpgm.build()), role, "-n", f"{at};{GROUP}", *udp, *more]


def run_both(receiving: list[str], sending: list[str], seconds: float = RUN_SECONDS) -> Outcome:
    """Start the receiver, then the sender, and return the summaries of both.

    Raises :class:`RuntimeError` if one of them prints no summary. Raises
    :class:`subprocess.TimeoutExpired` if one of them runs longer than ``seconds``.
    """
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
    """Wait until srmp-spark's receiver reports that it listens, or exits.

    The wait ends also after :data:`RUN_SECONDS`. Without the wait, OpenPGM's sender may be done on
    a busy machine before the receiver listens.
    """
    end = time.monotonic() + RUN_SECONDS
    while time.monotonic() < end and receiver.poll() is None:
        if "ready" in Path(f"/proc/self/fd/{errors.fileno()}").read_text():
            return
        time.sleep(0.05)


def run_case(hosts: TwoHosts, case: Case) -> Outcome:
    """Run one case and return the summaries of both sides, as :func:`run_both` does.

    The receiver runs on the other host, where the packets are lost.
    """
    hosts.lose(case.loss, case.udp_port, GROUP)
    count, size, rate = str(COUNTS[case.size]), str(case.size), str(RATE)
    if case.direction == "send":
        receiving = theirs("recv", case, THERE, "-T", "5000")
        sending = ours("send", case, HERE, "--count", count, "--size", size, "--rate", rate)
    else:
        receiving = ours("recv", case, THERE)
        # With the loss "first RDATA" each round of NAKs repairs only half of the missing packets,
        # so the sender must answer NAKs for longer.
        linger = "6000" if case.loss == "first RDATA" else "2500"
        sending = theirs("send", case, HERE, "-c", count, "-s", size, "-r", rate, "-L", linger)
    return run_both([*hosts.there(), *receiving], sending)


def run_profile(hosts: TwoHosts, direction: str) -> Outcome:
    """Run a session with the constants of [MC-MQSRM] 2.1.3.1 on both sides and 5 % loss.

    The rate is 70 KB/s, with an SPM every 0.5 s.
    """
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
    """Check that srmp-spark and ZeroMQ receive each other's APDUs.

    A receiver of srmp-spark stores the APDUs of a ZeroMQ publisher, and a sender of srmp-spark
    sends these APDUs again to a ZeroMQ subscriber. ``pgm`` is the encapsulation. Return a text that
    says what is wrong, or ``None``.
    """
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
    """Check with Wireshark the packets of a session with losses in which srmp-spark sends.

    No packet may be malformed, every checksum must be good, and SPMs, ODATA, RDATA and NCFs must be
    among the packets. Return a text that says what is wrong, or ``None``.
    """
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
    # Wireshark 4.0 writes the checksum itself into that field, and its verdict after a comma.
    bad = [row for row in rows if row[1].split(",")[-1] not in ("1", "Good") or row[2]]
    wanted = {"0x00", "0x04", "0x05", "0x0a"}
    if not wanted <= kinds:
        return f"tshark saw only the types {sorted(kinds)} in {len(rows)} packets"
    return f"{len(bad)} of {len(rows)} packets, such as {bad[0]}" if bad else None


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen cases, or all. Return 0 if all hold, 1 if not, 2 if a tool is missing.

    Outside a network namespace the command runs itself again inside a new one.
    """
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


def _problem(work: Any) -> str | None:  # noqa: ANN401  # any function without arguments
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
