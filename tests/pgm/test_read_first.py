"""A listener reads what the kernel has before it asks for what is missing: a repair may be there already."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pgm_kit import DPORT, SOURCE, TSI

from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.settings import PgmReceiverSettings
from srmp_spark.pgm.wire.packets import Data, Spm
from srmp_spark.queue_manager.multicast import listener as module
from srmp_spark.queue_manager.multicast.listener import GroupListener
from srmp_spark.queue_manager.multicast.settings import Encapsulation, PgmSettings
from srmp_spark.queue_manager.multicast.sockets import READ_FIRST_SECONDS


class Inlet:
    """There is always more."""

    is_behind = True

    def __init__(self) -> None:
        self._ends = socket.socketpair()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def read(self) -> list[tuple[bytes, bytes]]:
        return []

    def close(self) -> None:
        for each in self._ends:
            each.close()


def listener_of(inlet: Inlet, naks: list[bytes]) -> GroupListener:
    """With sockets of our own making; what it asks for comes into ``naks``."""
    outlet = SimpleNamespace(
        unicast=lambda packet, to: naks.append(packet),
        multicast=lambda packets: None,
        close=lambda: None,
    )
    address = MulticastAddress("239.192.9.1", DPORT)
    sockets: Any = SimpleNamespace(
        address=address, inlet=inlet, outlet=outlet, interface=SimpleNamespace(name="lo")
    )
    settings = PgmSettings(
        encapsulation=Encapsulation(3055), receiver=PgmReceiverSettings(nak_rb_ivl=(0.0, 0.0))
    )
    main = SimpleNamespace(is_congested=False, send=lambda message: None)
    listener = GroupListener(0, "private$/prices", address, settings, main)
    listener.sockets = sockets
    listener._has_begun = True
    return listener


async def asks_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inlet, naks, begin = Inlet(), list[bytes](), time.monotonic()
    listener = listener_of(inlet, naks)
    listener._is_reading = True

    def due(now: float) -> int:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
        listener._due()
        return len(naks)

    listener.engine.receive(Spm(TSI, DPORT, 0, 0, 2**32 - 1, SOURCE), SOURCE, begin)
    listener.engine.receive(Data(False, TSI, DPORT, 1, 0, b"x"), SOURCE, begin)
    assert due(begin) == 0, "what lies in the kernel's buffer may be number 0"
    assert due(begin + READ_FIRST_SECONDS) == 1
    assert listener._alarm.is_set
    listener._alarm.stop()
    inlet.close()


def test_a_nak_waits_for_what_is_not_read_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(asks_in_time(monkeypatch))
