"""WCF's message patterns (c) and (d) against a running queue manager, from CreateSequence to the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_kit import Callbacks, Client, Versions, receive, rows, wait_for
from wsrm_kit import VERSIONS

from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Offer,
    Sequence,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.namespaces import RmVersion

BOTH = pytest.mark.parametrize("versions", [VERSIONS[3], VERSIONS[5]], ids=["1.0", "1.1"])
RETURN = "urn:uuid:0afb8d36-bf26-4776-b8cf-8c91fddb5496"


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    server = Callbacks()
    yield server
    server.close()


@pytest.fixture
def running(tmp_path: Path, callbacks: Callbacks) -> Iterator[RunningQueueManager]:
    options = {"wsrm_buffer": 1, "allow_url": [f"{callbacks.url}*"]}
    with RunningQueueManager(
        tmp_path / "data",
        queues=["private$/orders"],
        listen_wsrm="127.0.0.1:0",
        **options,  # type: ignore[arg-type]
    ) as queue_manager:
        yield queue_manager


def create(client: Client, endpoint: EndpointReference) -> SoapMessage:
    offer = Offer(RETURN, None if client.versions[2] is RmVersion.V1_0 else endpoint)
    return replace(
        client.create(endpoint), content=CreateSequence(endpoint, offer=offer), reply_to=endpoint
    )


def accepted(client: Client, message: SoapMessage) -> None:
    content = message.content
    assert isinstance(content, CreateSequenceResponse)
    assert content.accept == EndpointReference(client.message().to)
    client.identifier = content.identifier


def last_of(client: Client, number: int) -> SoapMessage:
    return replace(
        client.number(number, is_last=True), action=RmVersion.V1_0.action("LastMessage"), body=b""
    )


@BOTH
def test_request_reply_with_a_client_that_can_only_be_answered(
    running: RunningQueueManager, versions: Versions
) -> None:
    """Nobody reads the queue, whose room is 1: each answer comes, late, and never says 0. Then a kill, and the end."""
    client = Client(running, versions=versions)
    accepted(client, client.answer(create(client, EndpointReference(versions[1].anonymous))))
    assert client.say(client.number(2)) == (202, None)
    assert client.told(client.number(1)) == (2, 1)
    assert client.told(client.number(2)) == (2, 1)
    running.kill9()
    running.start()
    client.close()
    assert client.told(client.number(2)) == (2, 1)
    receive(running, 2)
    assert client.told(client.number(3)) == (3, 1)
    if versions[2] is RmVersion.V1_0:
        assert client.told(last_of(client, 4)) == (4, 1)
        over = client.answer(
            client.of_rm(
                "TerminateSequence", TerminateSequence(client.identifier), message_id="urn:t"
            )
        )
        assert (over.content, over.relates_to) == (TerminateSequence(RETURN), "urn:t")
    else:
        closed = client.answer(client.of_rm("CloseSequence", CloseSequence(client.identifier, 3)))
        assert closed.content == CloseSequenceResponse(client.identifier)
        over = client.answer(
            client.of_rm("TerminateSequence", TerminateSequence(client.identifier, 3))
        )
        assert over.content == TerminateSequenceResponse(client.identifier)
        assert over.acknowledgements[0].is_final
    assert over.acknowledgements[0].ranges == ((1, 4 if versions[2] is RmVersion.V1_0 else 3),)
    assert [row["wsrm_number"] for row in rows(running)] == [1, 2, 3]


@BOTH
def test_duplex_with_a_client_that_has_an_address(
    running: RunningQueueManager, callbacks: Callbacks, versions: Versions
) -> None:
    client = Client(running, versions=versions)
    there = EndpointReference(callbacks.url)

    def came(content: object) -> SoapMessage:
        return wait_for(
            lambda: next((each for each in callbacks.came if each.content == content), None)
        )  # type: ignore[no-any-return]

    assert client.say(create(client, there)) == (202, None)
    wait_for(lambda: callbacks.came)
    accepted(client, callbacks.came[0])
    assert client.say(client.number(1)) == (202, None)
    if versions[2] is RmVersion.V1_0:
        assert client.say(last_of(client, 2)) == (202, None)
        wait_for(
            lambda: any(
                each.sequence == Sequence(RETURN, 1, is_last=True) for each in callbacks.came
            )
        )
        assert client.say(
            client.of_rm("TerminateSequence", TerminateSequence(client.identifier))
        ) == (202, None)
    else:
        for content in (
            CloseSequence(client.identifier, 1),
            TerminateSequence(client.identifier, 1),
        ):
            sent = client.of_rm(
                type(content).__name__,
                content,
                message_id=f"urn:{type(content).__name__}",
                reply_to=there,
            )
            assert client.say(sent) == (202, None)
        assert came(CloseSequenceResponse(client.identifier)).acknowledgements[0].is_final
        assert came(CloseSequence(RETURN)).reply_to == EndpointReference(client.message().to)
        assert came(TerminateSequenceResponse(client.identifier)).acknowledgements[0].is_final
    came(TerminateSequence(RETURN))
    assert [row["wsrm_number"] for row in rows(running)] == [1]
