"""The transport of a destination: read once from the text, carried by the key, found in the table."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest import mock

import pytest

from srmp_spark.names import format_names, multicast_address, reliable_url
from srmp_spark.queue_manager.sender.sending_transports import (
    Reports,
    SendingTransports,
    TransportSettings,
)
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey
from srmp_spark.transports import Transport, transport_of

IDENTITY = "aaaaaaaa-0000-4000-8000-000000000009"
URL, GROUP, SERVICE = (
    "http://peer.example/msmq/private$/q",
    "MULTICAST=234.1.1.1:8001",
    "wsrm:http://peer.example/in.svc",
)


@pytest.mark.parametrize(
    ("spelled", "transport"),
    [
        (URL, Transport.HTTP),
        (f"DIRECT={URL}", Transport.HTTP),
        ("http://wsrm.example/msmq/multicast=1", Transport.HTTP),
        (f"{URL},{GROUP}", Transport.HTTP),
        ("", Transport.HTTP),
        (GROUP, Transport.MULTICAST),
        (" direct=msmq:multicast=234.1.1.1:8001 ", Transport.MULTICAST),
        ("MULTICAST=nobody", Transport.MULTICAST),
        (SERVICE, Transport.RELIABLE),
        ("DIRECT=WSRM:https://peer.example/", Transport.RELIABLE),
    ],
)
def test_every_spelling_has_one_transport(spelled: str, transport: Transport) -> None:
    assert transport_of(spelled) is transport


def test_the_address_keeps_its_spelling_and_belongs_to_its_transport() -> None:
    assert reliable_url(" Direct=Wsrm:HTTP://Peer/In ") == "HTTP://Peer/In"
    assert reliable_url(GROUP) is None
    assert str(multicast_address("msmq:MULTICAST=234.1.1.1:8001")) == "234.1.1.1:8001"
    assert multicast_address(SERVICE) is None
    assert Transport.HTTP.address_in(URL) is None


def test_a_list_is_split_before_every_transport() -> None:
    names = (URL, GROUP, f"msmq:{GROUP}", SERVICE, f"DIRECT={SERVICE}")
    assert format_names(", ".join(names)) == names


def test_a_key_carries_its_transport_and_stays_a_pair() -> None:
    key = QueueKey(SERVICE, "plain")
    assert key.transport is Transport.RELIABLE
    assert "transport" in vars(key), "it is found once"
    assert (tuple(key), key, hash(key)) == (
        (SERVICE, "plain"),
        QueueKey(SERVICE, "plain"),
        hash((SERVICE, "plain")),
    )


def test_only_a_transport_with_streams_gets_one() -> None:
    for destination, kind in ((URL, "stream"), (GROUP, "plain"), (SERVICE, "plain")):
        assert QueueKey.for_messages(destination, transactional=True).kind == kind
        assert QueueKey.for_messages(destination, transactional=False).kind == "plain"


def test_a_transport_that_does_not_connect_first_is_always_ready() -> None:
    """What a transport does not override has no effect, and no entry in ``status``."""

    async def run() -> None:
        names = Reports.__dataclass_fields__
        reports = Reports(**{name: mock.Mock() for name in names})
        transports = SendingTransports(TransportSettings(), IDENTITY, reports)
        for destination, is_ready in ((URL, False), (GROUP, True), (SERVICE, True)):
            key = QueueKey(destination, "plain")
            load = Load(key, 0, 1, 1, 1, 1)
            assert transports.of(key).may_load(load) is is_ready
            assert transports.status(key) == {"multicast": None, "wsrm": None}
            for operate in ("hurry", "reset", "give_up", "forget"):
                getattr(transports.of(key), operate)(key)
        assert (
            len({type(transports.of(QueueKey(each, "plain"))) for each in (URL, GROUP, SERVICE)})
            == 3
        )
        assert not transports.has_changes()
        transports.stored(transports.take_changes())
        await transports.stop()
        failed = cast("mock.Mock", reports.on_not_reached)
        assert failed.call_count == 1, "the queue was forgotten while its host was looked up"

    asyncio.run(run())
