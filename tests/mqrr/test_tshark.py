"""Somebody else's eyes on our PDUs: Wireshark's dissector of DCE/RPC finds none malformed, and sees the calls that were made.

It has no dissector for remote read itself. Both ends are ours without a network; what they say is put into a capture file.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from rpc_kit import OPNUMS, SERVER, Link, pdus
from test_ntlm import acceptor, initiator

from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.server_connection import ServerSettings

TSHARK = shutil.which("tshark")
SEGMENT = 60_000
LEVELS = [AuthLevel.NONE, AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY]
PORT = 2103
RESPONSE, FAULT, BIND, BIND_ACK, AUTH3, CANCEL, ORPHANED = "2", "3", "11", "12", "16", "18", "19"


class Recorded(Link):
    """Keeps what both sides sent, in its order."""

    def __init__(self, *args, **more) -> None:
        super().__init__(*args, **more)
        self.said: list[tuple[bool, bytes]] = []

    def pump(self) -> None:
        while True:
            out, back = self.client.data_to_send(), self.server.data_to_send()
            if not out and not back:
                return
            self.said += [
                (by_client, data) for by_client, data in ((True, out), (False, back)) if data
            ]
            self.calls += self.server.receive(out)
            self.results += self.client.receive(back)


def capture(conversations: list[Recorded]) -> bytes:
    """As a capture file of raw IPv4, each conversation a TCP connection of its own."""
    frames = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 101)]
    count = 0
    for number, conversation in enumerate(conversations):
        sent = {True: 1, False: 1}
        ports = {True: (40_000 + number, PORT), False: (PORT, 40_000 + number)}
        for by_client, data in conversation.said:
            for at in range(0, len(data), SEGMENT):
                piece = data[at : at + SEGMENT]
                tcp = struct.pack(
                    "!HHIIBBHHH",
                    *ports[by_client],
                    sent[by_client],
                    sent[not by_client],
                    5 << 4,
                    0x18,
                    65_535,
                    0,
                    0,
                )
                ends = (
                    (b"\x0a\0\0\1", b"\x0a\0\0\2") if by_client else (b"\x0a\0\0\2", b"\x0a\0\0\1")
                )
                ip = struct.pack(
                    "!BBHHHBBH4s4s", 0x45, 0, 40 + len(piece), count & 0xFFFF, 0, 64, 6, 0, *ends
                )
                frame = ip + tcp + piece
                frames.append(struct.pack("<IIII", count, 0, len(frame), len(frame)) + frame)
                sent[by_client] += len(piece)
                count += 1
    return b"".join(frames)


def talk(syntax, level: AuthLevel, fragment: int) -> Recorded:
    """Every method, answers of many fragments, a fault, a cancel, an orphan."""
    server = ServerSettings(
        interfaces={REMOTE_READ: OPNUMS},
        port=PORT,
        accept_security=lambda kind, wanted, peer: acceptor(wanted) if kind == 10 else None,
    )
    security = None if level is AuthLevel.NONE else initiator(level)
    client = ClientSettings(
        syntaxes=(syntax,), auth_level=level, security=security, fragment=fragment
    )
    link = Recorded(client, SERVER if security is None else server)
    link.client.bind(0.0)
    link.pump()
    for opnum in sorted(OPNUMS):
        number = link.call(opnum, bytes(range(256)) * (20 if opnum == 12 else 1)).call_id
        if opnum == 11:
            link.server.fail(number, 0xC00E0003)
        else:
            link.server.respond(number, bytes(12_000 if opnum == 7 else 8))
        link.pump()
    waits = link.client.call(7, bytes(64), 0.0)
    link.pump()
    link.client.cancel(waits)
    link.pump()
    link.client.orphan(waits)
    link.pump()
    return link


def seen(path: Path, *fields: str) -> list[list[str]]:
    assert TSHARK is not None
    command = [
        TSHARK,
        "-n",
        "-r",
        str(path),
        "-d",
        f"tcp.port=={PORT},dcerpc",
        "-T",
        "fields",
        "-E",
        "occurrence=a",
    ]
    for field in fields:
        command += ["-e", field]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return [line.split("\t") for line in ran.stdout.splitlines()]


@pytest.mark.skipif(
    TSHARK is None and "SRMP_SPARK_INTEROP_MQRR" not in os.environ,
    reason="tshark is missing (Debian, Ubuntu: apt-get install tshark): NOBODY BUT "
    "OURSELVES HAS LOOKED AT OUR PDUs",
)
def test_wireshark_finds_no_malformed_pdu_and_sees_every_call(tmp_path: Path) -> None:
    assert TSHARK is not None, "tshark is missing (Debian, Ubuntu: apt-get install tshark)"
    talks = [talk(*each) for each in product((NDR, NDR64), LEVELS, (1_500, 5_840))]
    path = tmp_path / "talks.pcap"
    path.write_bytes(capture(talks))
    rows = seen(
        path,
        "dcerpc.pkt_type",
        "dcerpc.opnum",
        "_ws.malformed",
        "_ws.expert.severity",
        "dcerpc.cn_ack_result",
    )
    assert len(rows) == sum(
        1 for each in talks for _, data in each.said for _ in range(0, len(data), SEGMENT)
    )
    assert [row for row in rows if row[2]] == [], "malformed"
    kinds = [kind for row in rows for kind in row[0].split(",")]
    sent = Counter(
        str(int(pdu.type)) for each in talks for _, data in each.said for pdu in pdus(data)
    )
    assert Counter(kinds) == sent
    assert (
        sent[BIND] == sent[BIND_ACK] == sent[FAULT] == sent[CANCEL] == sent[ORPHANED] == len(talks)
    )
    assert sent[AUTH3] == len(talks) * 3 // 4
    assert sent[RESPONSE] > len(talks) * 15, "answers in several fragments"
    opnums = {opnum for row in rows for opnum in row[1].split(",") if opnum}
    assert opnums == {str(opnum) for opnum in OPNUMS}
    assert all("0" in row[4].split(",") for row in rows if row[4]), "a syntax was accepted"
