"""Both halves of multicast without processes between them: what crosses, back-pressure, figures."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from multicast_kit import GROUP, QUEUE, message
from pgm_kit import SOURCE, TSI

from srmp_spark.errors import ProcessMustEndError
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.addresses import SessionKey
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import Data, Spm
from srmp_spark.queue_manager.admission.faults import FaultLog
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.child import encoding
from srmp_spark.queue_manager.multicast import listener as module
from srmp_spark.queue_manager.multicast.crossing import (
    ApduRefused,
    Figures,
    Lost,
    MulticastArrived,
    ResumePlace,
    Settled,
    SourceFigures,
    SourceOpened,
    ToMain,
)
from srmp_spark.queue_manager.multicast.heard import HeardGroup
from srmp_spark.queue_manager.multicast.inbox import MulticastInbox, Settlement, UndecidedMulticast
from srmp_spark.queue_manager.multicast.listener import GroupListener
from srmp_spark.queue_manager.multicast.reading import read_apdu
from srmp_spark.queue_manager.multicast.settings import Encapsulation, PgmSettings
from srmp_spark.srmp.codec.apdu import apdu_of

KEY = SessionKey(SOURCE, TSI)
SETTINGS = PgmSettings(
    encapsulation=Encapsulation(3055), receiver=PgmReceiverSettings(nak_rb_ivl=(0.0, 0.0))
)


class Inlet:
    """Gives out what the test put in."""

    is_behind = False

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        self.waiting: list[bytes] = []

    def put(self, *packets: bytes) -> None:
        self.waiting += packets
        self._ends[1].send(b"x")

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def read(self) -> list[tuple[bytes, bytes]]:
        self._ends[0].recv(1_000)
        found, self.waiting = [(each, SOURCE) for each in self.waiting], []
        return found

    def close(self) -> None:
        for each in self._ends:
            each.close()


class Main:
    """The channel to the main process: everything passes its encoding."""

    def __init__(self) -> None:
        self.is_congested = False
        self.came: list[Any] = []

    def send(self, sent: ToMain) -> None:
        self.came.append(msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=ToMain))

    def taken(self) -> list[Any]:
        came, self.came = self.came, []
        return came


def with_listener(
    dialogue: Callable[[GroupListener, Inlet, Main], Coroutine[Any, Any, None]],
) -> None:
    async def run() -> None:
        inlet, main = Inlet(), Main()
        listener = GroupListener(3, QUEUE, GROUP, SETTINGS, main)
        outlet = SimpleNamespace(
            unicast=lambda packet, to: None, multicast=lambda packets: None, close=lambda: None
        )
        interface = SimpleNamespace(name="lo")
        sockets: Any = SimpleNamespace(
            address=GROUP, inlet=inlet, outlet=outlet, interface=interface, close=inlet.close
        )
        listener._hear_by(sockets)
        await dialogue(listener, inlet, main)
        listener.stop()

    asyncio.run(run())


def data(number: int, apdu: bytes) -> bytes:
    return encode(Data(False, TSI, GROUP.port, number, 0, apdu))


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0.005)


def test_each_number_of_a_session_crosses_in_order_as_one_of_four_things() -> None:
    async def dialogue(listener: GroupListener, inlet: Inlet, main: Main) -> None:
        good = apdu_of(message(1, b"price"), GROUP)
        elsewhere = good.replace(b"MULTICAST=239.192.77.1:", b"MULTICAST=239.192.77.9:")
        inlet.put(data(0, good))
        await turns()
        assert main.taken() == [], "nothing is read before the main process says so"
        listener.begin([])
        await turns()
        opened, arrived = main.taken()
        assert opened == SourceOpened(3, KEY, 0)
        assert (arrived.group, arrived.session, arrived.first, arrived.last) == (3, KEY, 0, 0)
        assert (arrived.message.body, arrived.octets) == (b"price", len(good))
        start, end = arrived.parts.body
        assert arrived.post[arrived.head_length :][start:end] == b"price"
        last_packet = encode(Spm(TSI, GROUP.port, 0, 9, 8, SOURCE))
        inlet.put(data(1, b"rubbish"), data(2, elsewhere), last_packet)
        await turns()
        because = "an APDU without the blank line that ends its HTTP head"
        assert main.taken() == [
            ApduRefused(3, KEY, 1, 1, 400, "malformed", "[MC-MQSRM] 2.1.2", because),
            ApduRefused(3, KEY, 2, 2, 400, "multicast", "[MC-MQSRM] 2.2.4.2", None),
            Lost(3, KEY, 3, 8, 6, "trail", "the source's window moved on"),
        ]  # fmt: skip

    with_listener(dialogue)


def broken(apdu: bytes, address: object) -> Any:
    raise ZeroDivisionError


def cannot_cross(apdu: bytes, address: Any) -> Any:
    """A message with a number that no frame can hold."""
    found: Any = read_apdu(apdu, address)
    return found._replace(message=found.message._replace(app_specific=2**70))


@pytest.mark.parametrize("fault", [broken, cannot_cross])
def test_a_fault_of_ours_costs_one_message(
    fault: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def dialogue(listener: GroupListener, inlet: Inlet, main: Main) -> None:
        listener.begin([])
        good = apdu_of(message(1), GROUP)
        with monkeypatch.context() as patched:
            patched.setattr(module, "read_apdu", fault)
            inlet.put(data(0, good))
            await turns()
        assert listener.pending_bytes == 0, "nothing waits for what did not cross"
        inlet.put(data(1, good))
        await turns()
        _, refused, arrived = main.taken()
        assert (refused.status, refused.reason, refused.first) == (503, "internal", 0)
        assert isinstance(arrived, MulticastArrived)
        assert caplog.text.count("request.failed") == 1

    with_listener(dialogue)


def test_nothing_is_read_while_too_much_waits_for_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = apdu_of(message(1, b"price"), GROUP)
    monkeypatch.setattr(module, "PENDING_BYTES_MAX", 2 * len(good))

    async def dialogue(listener: GroupListener, inlet: Inlet, main: Main) -> None:
        listener.begin([])
        inlet.put(*[data(number, good) for number in range(3)])
        await turns()
        assert len(main.taken()) == 4, "three messages, and the session"
        inlet.put(data(3, good))
        await turns()
        assert main.taken() == []
        assert not listener._alarm.is_set, "and nothing is asked for"
        listener.settled(len(good))
        await turns()
        assert [each.first for each in main.taken()] == [3]

    with_listener(dialogue)


def test_nothing_is_read_while_the_main_process_is_behind() -> None:
    async def dialogue(listener: GroupListener, inlet: Inlet, main: Main) -> None:
        listener.begin([])
        main.is_congested = True
        inlet.put(data(0, apdu_of(message(1), GROUP)))
        await turns()
        assert len(main.taken()) == 2, "what it was reading already"
        inlet.put(data(1, apdu_of(message(2), GROUP)))
        await turns()
        assert main.taken() == []
        main.is_congested = False
        listener.on_room()
        await turns()
        assert len(main.taken()) == 1

    with_listener(dialogue)


def test_figures_cross_when_they_have_changed() -> None:
    async def dialogue(listener: GroupListener, inlet: Inlet, main: Main) -> None:
        listener.begin([ResumePlace(KEY._replace(source=b"\x0a\x63\x00\x09"), 5)])
        inlet.put(data(0, apdu_of(message(1), GROUP)), b"noise")
        await turns()
        (figures,) = listener.figures()
        assert {each.session.source for each in figures.changed} == {SOURCE, b"\x0a\x63\x00\x09"}
        assert (figures.totals["odata"], figures.totals["malformed"], figures.gone) == (1, 1, [])
        assert list(listener.figures()) == [], "nothing has changed"
        inlet.put(data(1, b"more"))
        await turns()
        (figures,) = listener.figures()
        assert [(each.session, each.packets, each.messages) for each in figures.changed] == [
            (KEY, 2, 2)
        ]
        listener.engine._forget(KEY)
        (figures,) = listener.figures()
        assert (figures.changed, figures.gone, figures.totals["odata"]) == ([], [KEY], 2)

    with_listener(dialogue)


# --- the main process's half --------------------------------------------------------------------------------------


def figures_of(packets: int, *gone: SessionKey) -> Figures:
    source = SourceFigures(KEY, "open", 1, packets, 0, 0, 0, 0, 0, 0, 0.0)
    return Figures(0, {"odata": packets}, [] if gone else [source], list(gone))


def test_counters_never_go_back_and_sources_end_with_their_gateway() -> None:
    group = HeardGroup(QUEUE, GROUP)
    group.note(figures_of(5))
    group.note(figures_of(7))
    assert [each["packets"] for each in group.sources()] == [7]
    group.lost_gateway()
    assert (group.totals()["odata"], list(group.sources())) == (7, [])
    assert group.deaf_because is not None
    group.note(figures_of(2))
    assert group.totals()["odata"] == 9
    group.note(figures_of(3, KEY))
    assert (group.totals()["odata"], list(group.sources())) == (10, [])


def test_the_next_gateway_goes_on_where_the_last_one_was() -> None:
    group, other = HeardGroup(QUEUE, GROUP), KEY._replace(source=b"\x0a\x63\x00\x09")
    group.opened(KEY, 7)
    group.opened(other, 3)
    assert group.places() == [ResumePlace(KEY, 7), ResumePlace(other, 3)]
    group.note_reported(KEY, 2**32 - 1)
    group.ended(other)
    assert group.places() == [ResumePlace(KEY, 0)]


def arrived() -> MulticastArrived:
    apdu = apdu_of(message(1), GROUP)
    found: Any = read_apdu(apdu, GROUP)
    return MulticastArrived(
        0, KEY, 4, 5, len(apdu), found.post.post, found.post.head_length, found.message, found.parts
    )


def inbox_that(does: Callable[[UndecidedMulticast], None]) -> MulticastInbox:
    admission: Any = SimpleNamespace(gate=Gate(), judge=lambda delivery, message, *more: message)
    acceptor: Any = SimpleNamespace(
        take=lambda message, arrival, post, head_length, delivery: does(delivery), faults=FaultLog()
    )
    return MulticastInbox(admission, acceptor, lambda: 0)


def test_what_is_settled_is_told_once_a_turn_and_only_to_its_gateway() -> None:
    async def run() -> None:
        told: list[Settled] = []
        settlement = Settlement(asyncio.get_running_loop(), told.append)
        refusals: list[ApduRefused] = []
        size = arrived().octets

        def refuse(delivery: UndecidedMulticast) -> None:
            delivery.refuse(503, "paused", "section")

        def fail(delivery: UndecidedMulticast) -> None:
            raise ZeroDivisionError

        def end(delivery: UndecidedMulticast) -> None:
            raise ProcessMustEndError("x")

        for does in (lambda delivery: delivery.acknowledge(None), refuse, fail, end):
            delivery = UndecidedMulticast(arrived(), settlement, refusals.append)
            inbox_that(does).accept(delivery, GROUP.format_name)
        assert told == []
        await asyncio.sleep(0)
        assert told == [Settled(0, 3 * size)], (
            "nothing is told of one that the end of the process leaves open"
        )
        assert [(each.first, each.last, each.status, each.reason) for each in refusals] == [
            (4, 5, 503, "paused"), (4, 5, 503, "internal")
        ]  # fmt: skip

    asyncio.run(run())


def test_settings_cross_whole() -> None:
    given = PgmSettings(
        encapsulation=Encapsulation.parse("udp:7"), interface="eth0", ttl=3, source=PgmSourceSettings(txw_max_rte=1.0),
        receiver=PgmReceiverSettings(nak_rb_ivl=(0.25, 0.5), sessions_max=3),
    )  # fmt: skip
    assert encoding.decode(encoding.encode(given), PgmSettings) == given
