"""The gateway process of multicast on a running ``serve``: it is killed, flooded, and cannot join."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from multicast_kit import (
    GROUP,
    LISTENING,
    QUEUE,
    Stranger,
    last,
    message,
    metric,
    rows,
    status,
    until,
)

from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import Data, Spm
from srmp_spark.queue_manager.multicast.ports import MulticastLink
from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.srmp.codec.apdu import apdu_of
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError

ORDERS = "private$/orders"
LINEAGE = "0a0b0c0d-7777-7777-7777-0a0b0c0d0e0f"
FAST = (
    "[pgm_constants]\nnak_rpt_ivl = 0.1\nnak_rdata_ivl = 0.1\nnak_ncf_retries = "
    "100\nnak_data_retries = 100\n"
)
FLOOD_SECONDS = 4.0
CPU_SHARE_MAX = 0.25
"""Of the CPU time of the gateway under a flood: what the main process may need of it."""
LATE_MAX_S = 2.0
"""Longest wait of a good sender beside a flood, on a machine that other tests share."""


class Live(NamedTuple):
    running: RunningQueueManager
    pgm: Encapsulation

    @property
    def pid(self) -> int:
        assert self.running.process is not None
        return self.running.process.pid


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    config = folder / "constants.toml"
    config.write_text(FAST)
    pgm = f"udp:{kept_port()}"
    with RunningQueueManager(
        folder / "data", queues=[LISTENING, ORDERS], pgm=pgm, config=config
    ) as running:
        yield Live(running, Encapsulation.parse(pgm))


def gateway_of(pid: int) -> int:
    """The process id of the gateway, of all children of the queue manager; 0 if there is none."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(") ")[2].split()[1])
            words = stat.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and MulticastLink.module.encode() in words:
            return int(stat.parent.name)
    return 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def posted(live: Live, number: int) -> float:
    """A good sender's message by SRMP is answered 200; the seconds that it took."""
    host, _, port = live.running.ready["listening"].partition("://")[2].rpartition(":")
    to = f"http://{host}:{port}/msmq/{ORDERS}"
    sent = ForeignMessage(
        to=to, lineage=LINEAGE, uniquifier=number, sent_at=1_790_000_000, body=b"order %d" % number
    )
    began = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        wire.sendall(post(sent).raw)
        assert wire.recv(100).startswith(b"HTTP/1.1 200 "), "a good sender is answered"
    return time.monotonic() - began


def bodies(live: Live, after: int) -> list[bytes]:
    return [bytes(row["body"]) for row in rows(live.running, after)]


def test_a_killed_gateway_is_started_again_and_nothing_is_lost(live: Live) -> None:
    """What its source sent meanwhile is asked for; the main process goes on, and its counters never go back."""
    running, stranger = live.running, Stranger(live.pgm)
    before = last(running)
    sent = [b"price %d" % number for number in range(9)]

    def send(first: int) -> None:
        stranger.send([apdu_of(message(first + n, sent[first + n]), GROUP) for n in range(3)])

    send(0)
    until(lambda: stranger.speak() or last(running) == before + 3, "three messages came")
    heard = 'queue="private$/prices",what="odata"'
    counted = until(
        lambda: metric(running, "srmp_pgm_packets_total").get(heard, 0), "they are counted"
    )
    gateway = until(lambda: gateway_of(live.pid), "there is a gateway")
    assert running.stderr().count("multicast.died") == 0
    os.kill(gateway, signal.SIGKILL)
    until(lambda: gateway_of(live.pid) != gateway, "it has ended")
    send(3)
    posted(live, 1)
    until(
        lambda: stranger.speak() or last(running) == before + 6,
        "what was sent meanwhile is asked for",
    )
    send(6)
    until(lambda: stranger.speak() or last(running) == before + 9, "and what was sent later comes")
    assert bodies(live, before) == sent, "in order, each once"
    until(
        lambda: metric(running, "srmp_pgm_packets_total").get(heard, 0) >= counted + 3,
        "counters go on",
    )
    until(lambda: status(running)["multicast"]["deaf"] == [], "it hears again")
    assert running.stderr().count("multicast.died") == 1
    assert running.process is not None
    assert running.process.poll() is None
    assert running.ready["pid"] == live.pid
    assert "Traceback" not in running.stderr()
    assert "pgm.lost " not in running.stderr()
    stranger.close()


def test_a_flood_costs_the_gateway_and_not_the_main_process(live: Live) -> None:
    """Noise, made-up sources and windows that jump, as fast as one process can send them, beside a good sender of SRMP."""
    running, before = live.running, last(live.running)
    gateway = until(lambda: gateway_of(live.pid), "there is a gateway")
    began = cpu_seconds(live.pid), cpu_seconds(gateway)
    assert flood(live) > 10_000
    of_main, of_gateway = cpu_seconds(live.pid) - began[0], cpu_seconds(gateway) - began[1]
    assert of_main < CPU_SHARE_MAX * of_gateway, (
        f"{of_main:.2f} s beside {of_gateway:.2f} s of the gateway"
    )

    async def both() -> list[float]:
        flooding = asyncio.create_task(asyncio.to_thread(flood, live))
        waits = []
        while not flooding.done():
            waits.append(await asyncio.to_thread(posted, live, 1_000 + len(waits)))
        return waits

    waits = asyncio.run(both())
    assert max(waits) < LATE_MAX_S, (
        f"a good sender waited {max(waits):.2f} s, {len(waits)} messages"
    )
    assert gateway_of(live.pid) == gateway
    stranger = Stranger(live.pgm)
    stranger.send([apdu_of(message(77, b"after all that"), GROUP)])
    until(
        lambda: (
            metric(running, "srmp_pgm_packets_total").get(f'queue="{QUEUE}",what="malformed"', 0)
            > 1_000
        ),
        "counted",
    )
    assert last(running) >= before
    stranger.close()


def flood(live: Live) -> int:
    """Send for FLOOD_SECONDS; how many datagrams."""
    end, count, group, path = (
        time.monotonic() + FLOOD_SECONDS,
        0,
        (GROUP.group, live.pgm.udp_port),
        nla_of("127.0.0.1"),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        while time.monotonic() < end:
            tsi = Tsi(b"madeup", count % 60_000)
            for packet in (
                os.urandom(60), os.urandom(60), os.urandom(60),
                encode(Spm(tsi, GROUP.port, count, count % 5, (count * 1_000) % 2**32, path)),
                encode(Data(False, tsi, GROUP.port, count, 0, b"x" * 900)),
            ):  # fmt: skip
                sender.sendto(packet, group)
                count += 1
    return count


# --- the start ------------------------------------------------------------------------------------------------


def refused(folder: Path, **options: str) -> ServeFailedError:
    with (
        pytest.raises(ServeFailedError) as failed,
        RunningQueueManager(folder / "d", queues=[LISTENING], **options),
    ):
        pass
    return failed.value


def test_a_group_that_cannot_be_joined_ends_the_start_in_words(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((GROUP.group, 0))  # without SO_REUSEPORT: it shares with none
        failed = refused(tmp_path, pgm=f"udp:{other.getsockname()[1]}")
    assert failed.code == 2
    assert f"group {GROUP.group} cannot be joined on lo (127.0.0.1)" in failed.stderr
    assert "see --pgm-interface" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_interface_that_is_not_here_ends_the_start_in_words(tmp_path: Path) -> None:
    failed = refused(tmp_path, pgm=f"udp:{kept_port()}", pgm_interface="nosuch0")
    assert failed.code == 2
    assert "--pgm-interface nosuch0: no such interface is up here; there are " in failed.stderr
