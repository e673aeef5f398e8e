"""Runs srmp-spark's PGM source or receiver as a process, like OpenPGM's ``pgmpeer``.

    python -m tests.kit.pgm.peer recv --interface 10.99.0.2 --address 239.192.9.1:7500 --pgm raw
    python -m tests.kit.pgm.peer send --interface 10.99.0.1 --address 239.192.9.1:7500 --pgm raw

The process consists of the engines and sockets of srmp-spark and nothing else. An APDU is two
64-bit numbers (its index and the total count) and a fixed pattern, as ``pgmpeer`` makes and checks
it. The last line of the output is a JSON object with the same names as in ``pgmpeer``.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.outputs import Apdu, DataLost, Multicast, Output, Unicast
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.queue_manager.multicast.interfaces import Interface, find_interface
from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.queue_manager.multicast.sockets import (
    READ_FIRST_SECONDS,
    UPSTREAM,
    Inlet,
    Outlet,
    tpdu_of,
)

_NUMBERS = struct.Struct("!QQ")
_PATTERN = bytes(range(256)) * 260
WAIT_MAX_S = 0.05
"""Longest sleep, in seconds. Then the conditions for the end of the run are checked again."""
QUEUED_OCTETS = 262_144
"""Most octets that wait in the source to be sent. At the limit the sender waits."""


def apdu_number(index: int, count: int, size: int) -> bytes:
    """Return the APDU ``index`` (from 0) of ``count``, with ``size`` octets but at least 16."""
    return _NUMBERS.pack(index, count) + _PATTERN[16:size]


def _wait(readers: list[Inlet], until: float | None, now: float) -> None:
    seconds = WAIT_MAX_S if until is None else min(max(until - now, 0.0), WAIT_MAX_S)
    select.select(readers, [], [], seconds)


def _usage(began: float, ended: float, messages: int, octets: int) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = ended - began
    return {
        "msgs": messages,
        "bytes": octets,
        "secs": round(seconds, 4),
        "MBps": round(octets / seconds / 1e6, 2) if seconds > 0 else 0,
        "cpu_user": round(used.ru_utime, 3),
        "cpu_sys": round(used.ru_stime, 3),
        "rss_kib": used.ru_maxrss,
    }


class Sending:
    """Runs a source that sends a number of APDUs, answers NAKs for a while, and ends.

    ``args`` are those of the command line.
    """

    def __init__(self, args: argparse.Namespace, interface: Interface) -> None:
        self._args = args
        encapsulation: Encapsulation = args.pgm
        address: MulticastAddress = args.address
        self._outlet = Outlet(
            encapsulation,
            interface,
            address.group,
            args.ttl,
            is_source=True,
            packs=not args.no_packs,
        )
        self._inlet = Inlet.of_group(encapsulation, interface, address.group, only=UPSTREAM)
        chosen: dict[str, Any] = (
            {"txw_max_rte": args.rate, "token_bucket": args.bucket} if args.rate else {}
        )
        if args.window:
            chosen |= {
                "txw_secs": args.window,
                "txw_adv_secs": 0.15 * args.window,
                "txw_adv_ivl": 0.15 * args.window,
            }
        settings = PgmSourceSettings(**chosen)
        settings = replace(settings, tpdu_max=tpdu_of(settings.tpdu_max, encapsulation, interface))
        tsi = Tsi(SystemRandom().randbytes(6), SystemRandom().randrange(1, 65_536))
        self.source = PgmSource(
            tsi,
            address.port,
            source=nla_of(interface.address),
            group=nla_of(address.group),
            now=time.monotonic(),
            settings=settings,
        )

    def run(self) -> dict[str, Any]:
        """Send everything, close the source, and return the summary for the output."""
        args = self._args
        self._for(args.start)
        began = time.monotonic()
        octets = messages = 0
        for apdu in self._apdus():
            while self.source.waiting and not self.source.has_room(
                self.source.settings.queue_bytes_max - QUEUED_OCTETS
            ):
                self._turn(time.monotonic(), sleeps=True)
            self.source.send(apdu)
            octets += len(apdu)
            messages += 1
        while self.source.waiting or self._outlet.is_blocked:
            self._turn(time.monotonic(), sleeps=True)
        ended = time.monotonic()
        used = _usage(began, ended, messages, octets)
        self._for(args.linger)
        self.source.close(time.monotonic())
        self._for(args.fin)
        self._outlet.close()
        self._inlet.close()
        return used | {"role": "send", "packets": dict(self.source.counts)}

    def _apdus(self) -> Iterator[bytes]:
        args = self._args
        if args.replay is not None:
            return (bytes.fromhex(line) for line in Path(args.replay).read_text().split())
        return (apdu_number(index, args.count, args.size) for index in range(args.count))

    def _for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self._turn(now, sleeps=True)

    def _turn(self, now: float, *, sleeps: bool) -> None:
        if self._outlet.flush():
            self._multicast(self.source.poll(now))
        until = now + 0.001 if self._outlet.is_blocked else self.source.next_timer()
        if sleeps:
            _wait([self._outlet.inlet, self._inlet], until, now)
        for inlet in (self._outlet.inlet, self._inlet):
            for octets, _ in inlet.read():
                if len(octets) > 4 and octets[4] in UPSTREAM:
                    self._multicast(self.source.receive(decode(octets), time.monotonic()))

    def _multicast(self, packets: list[Multicast]) -> None:
        at = 0
        while at < len(packets):
            end, alert = at + 1, packets[at].router_alert
            while end < len(packets) and packets[end].router_alert is alert:
                end += 1
            self._outlet.multicast([each.packet for each in packets[at:end]], router_alert=alert)
            at = end


class Receiving:
    """Runs a receiver that checks APDUs until all have arrived or none arrives any longer.

    ``args`` are those of the command line.
    """

    def __init__(self, args: argparse.Namespace, interface: Interface) -> None:
        self._args = args
        address: MulticastAddress = args.address
        self._inlet = Inlet.of_group(args.pgm, interface, address.group)
        self._outlet = Outlet(args.pgm, interface, address.group, 1, is_source=False)
        faster = {"nak_rpt_ivl": args.nak_rpt, "nak_rdata_ivl": args.nak_rdata}
        faster |= {
            "rxw_sqns_max": 262_144,
            "rxw_bytes_max": 1 << 28,
            "buffer_bytes_max": 1 << 28,
            "nak_rate_max": args.nak_rate,
        }
        settings = PgmReceiverSettings(**faster)
        self._engine = PgmReceiver(
            address.port, nla_of(address.group), SystemRandom().uniform, settings
        )
        self.messages = self.octets = self.total = self.next = 0
        self.gaps = self.bad = self.lost = 0
        self.began = self.ended = 0.0
        self._kept: list[str] = []
        self._chance = SystemRandom().random

    def run(self) -> dict[str, Any]:
        """Receive until the end of the run, and return the summary for the output.

        With ``--keep`` the APDUs are written to a file and not checked.
        """
        args = self._args
        print("ready", file=sys.stderr, flush=True)
        started = last = time.monotonic()
        while True:
            now = time.monotonic()
            before = self.messages
            for octets, source in self._inlet.read():
                if not (args.lose and self._chance() < args.lose):
                    self._do(self._engine.receive(decode(octets), source, now))
            when = self._engine.next_timer()
            if when is not None and (not self._inlet.is_behind or now >= when + READ_FIRST_SECONDS):
                self._do(self._engine.poll(now))
            if self.messages > before:
                last = now
            if (self.total and self.next >= self.total) or (
                args.expect and self.messages >= args.expect
            ):
                break
            if now - last > args.idle and (self.messages or now - started > args.patience):
                break
            _wait([self._inlet], self._engine.next_timer(), now)
        if args.keep is not None:
            Path(args.keep).write_text("\n".join(self._kept))
        sessions = {
            name: sum(session.counts[name] for session in self._engine)
            for name in ("odata", "rdata", "duplicate", "nak")
        }
        found = {
            "role": "recv",
            "total_sent": self.total,
            "missing": max(self.total - self.messages, 0),
            "gaps": self.gaps,
        }
        return (
            _usage(self.began, self.ended, self.messages, self.octets)
            | found
            | {"bad": self.bad, "lost_packets": self.lost, "packets": sessions}
        )

    def _do(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Apdu):
                self._take(output.data)
            elif isinstance(output, Unicast):
                self._outlet.unicast(output.packet, output.to)
            elif isinstance(output, Multicast):
                self._outlet.multicast((output.packet,))
            elif isinstance(output, DataLost):
                self.lost += output.packets

    def _take(self, apdu: bytes) -> None:
        self.ended = time.monotonic()
        self.began = self.began or self.ended
        self.messages += 1
        self.octets += len(apdu)
        if self._args.keep is not None:
            self._kept.append(apdu.hex())
            return
        if len(apdu) < _NUMBERS.size:
            self.bad += 1
            return
        index, self.total = _NUMBERS.unpack_from(apdu)
        self.gaps += index != self.next
        self.bad += apdu[16:] != _PATTERN[16 : len(apdu)]
        self.next = index + 1


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen role, print its summary, and return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("role", choices=("send", "recv"))
    parser.add_argument("--interface", default="127.0.0.1")
    parser.add_argument("--address", type=MulticastAddress.parse, required=True)
    parser.add_argument("--pgm", type=Encapsulation.parse, required=True)
    parser.add_argument("--ttl", type=int, default=1)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="octets a second (default: that of the document)"
    )
    parser.add_argument(
        "--bucket", type=float, default=0.002, help="seconds of --rate in the token bucket"
    )
    parser.add_argument(
        "--window", type=float, default=0.0, help="seconds that can be repaired (default: TXW_SECS)"
    )
    parser.add_argument("--start", type=float, default=1.2, help="seconds of SPMs before the data")
    parser.add_argument(
        "--linger", type=float, default=2.0, help="seconds of repairs after the last APDU"
    )
    parser.add_argument("--fin", type=float, default=0.2)
    parser.add_argument("--no-packs", action="store_true", help="one packet in a sendmsg")
    parser.add_argument("--replay", help="a file of APDUs in hexadecimal to send instead")
    parser.add_argument(
        "--keep", help="a file for what comes, in hexadecimal; nothing is checked then"
    )
    parser.add_argument("--idle", type=float, default=4.0)
    parser.add_argument(
        "--patience", type=float, default=15.0, help="seconds to wait for the first APDU"
    )
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--nak-rpt", type=float, default=0.2)
    parser.add_argument("--nak-rdata", type=float, default=0.4)
    parser.add_argument("--nak-rate", type=float, default=1000.0)
    parser.add_argument(
        "--lose",
        type=float,
        default=0.0,
        help="drop this share of what arrives, where no nftables can",
    )
    args = parser.parse_args(arguments)
    interface = find_interface(args.interface)
    summary = (Sending if args.role == "send" else Receiving)(args, interface).run()
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
