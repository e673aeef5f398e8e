"""Queue managers that speak PGM over UDP on loopback, and packets of our own making beside them."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
import requests

from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.message import Message
from srmp_spark.names import MulticastAddress, quote_queue_name
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.settings import PgmSourceSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.queue_manager.multicast.interfaces import find_interface
from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.queue_manager.multicast.sockets import Outlet
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.pgm.raw_sockets import may_be_raw

GROUP = MulticastAddress("239.192.77.1", 8001)
QUEUE = "private$/prices"
LISTENING = f"{QUEUE}:multicast={GROUP}"
WAIT_S = 60.0
GUID = "32221eda-9376-46df-b6ed-783091123831"


needs_raw = pytest.mark.skipif(not may_be_raw(), reason="raw IP needs CAP_NET_RAW: run it as root")


def until(condition: Callable[[], Any], what: str) -> Any:
    """What ``condition`` gives when it is true for the first time."""
    end = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < end, f"in {WAIT_S} s: {what}"
        time.sleep(0.05)
    return found


def status(running: RunningQueueManager) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{running.api}/v1/status", timeout=60).json()
    return found


def last(running: RunningQueueManager) -> int:
    """The last sequence of the queue."""
    return int(next(each["last"] for each in status(running)["queues"] if each["name"] == QUEUE))


def rows(running: RunningQueueManager, after: int = 0) -> list[dict[str, Any]]:
    """The rows of the queue after a sequence."""
    where = {"epoch": status(running)["epoch"], "after": after, "to": last(running)}
    if where["to"] <= after:
        return []
    answer = requests.get(
        f"{running.api}/v1/queues/{quote_queue_name(QUEUE)}/rows", params=where, timeout=60
    )
    answer.raise_for_status()
    found: list[dict[str, Any]] = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    return found


def send(running: RunningQueueManager, messages: Iterable[Mapping[str, Any]]) -> None:
    """As ``srmp-spark send`` does; ``body`` is bytes."""
    given = [{**each, "body_base64": base64.b64encode(each["body"]).decode()} for each in messages]
    for at in range(0, len(given), 100):
        part = [
            {name: value for name, value in each.items() if name != "body"}
            for each in given[at : at + 100]
        ]
        OutgoingClient(running.api).send_away(part)


def outgoing(running: RunningQueueManager, destination: str) -> dict[str, Any]:
    """The entry of ``status.outgoing``; empty if there is none."""
    return next(
        (each for each in status(running)["outgoing"] if each["destination"] == destination), {}
    )


def metric(running: RunningQueueManager, name: str) -> dict[str, float]:
    """Labels → value."""
    lines = requests.get(f"{running.api}/metrics", timeout=60).text.splitlines()
    samples = (line.rpartition(" ") for line in lines if line.startswith(f"{name}{{"))
    return {labels.partition("{")[2].rstrip("}"): float(value) for labels, _, value in samples}


def message(number: int, body: bytes = b"x", to: str = f"MSMQ:{GROUP.format_name}") -> Message:
    return Message(
        to, action="MSMQ:price", has_msmq=True, lineage=GUID, source_qm=GUID, uniquifier=number, body=body
    )  # fmt: skip


class Stranger:
    """A source of our own without a queue manager, on loopback."""

    def __init__(
        self, encapsulation: Encapsulation, *, tsi: Tsi | None = None, path: str | None = None
    ) -> None:
        """``tsi``: that of another one that ended; ``path``: what it writes into its SPMs in place of its address."""
        interface = find_interface("127.0.0.1")
        self.outlet = Outlet(encapsulation, interface, GROUP.group, 1, is_source=True)
        self.source = PgmSource(
            tsi or Tsi(os.urandom(6), 4711), GROUP.port, source=nla_of(path or interface.address), group=nla_of(GROUP.group),
            now=time.monotonic(), settings=PgmSourceSettings(txw_max_rte=1e6),
        )  # fmt: skip

    def send(
        self, apdus: Iterable[bytes], *, drop: Callable[[bytes], bool] = lambda packet: False
    ) -> None:
        """All of them, one packet each; those that ``drop`` names never leave."""
        for apdu in apdus:
            self.source.send(apdu)
        while self.source.waiting:
            for each in self.source.poll(time.monotonic()):
                if not drop(each.packet):
                    self.outlet.multicast([each.packet])
            time.sleep(0.002)

    def speak(self) -> None:
        """What is due now leaves, and who asks is answered."""
        now = time.monotonic()
        packets = self.source.poll(now)
        for octets, _ in self.outlet.inlet.read():
            packets += self.source.receive(decode(octets), now)
        for each in packets:
            self.outlet.multicast([each.packet])

    def close(self) -> None:
        self.outlet.close()
