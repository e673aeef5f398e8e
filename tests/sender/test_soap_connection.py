"""SOAP over HTTP to services that speak, or leave, before they are asked (``make attack`` found it)."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from srmp_spark.queue_manager.sender.http.addresses import Addresses
from srmp_spark.queue_manager.sender.reliable.soap_connection import NoAnswerError, SoapConnection
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.wsrm.codec.elements import SoapMessage
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

TRIES = 30
"""Connections of one test: whether the service is heard before the request is written is a race."""


async def _ask(serve: object) -> list[NoAnswerError]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # type: ignore[arg-type]  # a callback
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"
    message = SoapMessage(
        soap=SoapVersion.V1_2,
        addressing=AddressingVersion.V2005_08,
        rm=RmVersion.V1_1,
        action="urn:a",
        body=b"<n/>",
    )
    refused: list[NoAnswerError] = []
    for _ in range(TRIES):
        connection = SoapConnection(
            url, Addresses(asyncio.get_running_loop()), ClientTls(), lambda destination: destination
        )
        with pytest.raises(NoAnswerError) as raised:
            await asyncio.wait_for(connection.post(message), 10)
        refused.append(raised.value)
        connection.close()
    server.close()
    return refused


def test_a_service_that_speaks_unasked_gives_no_answer_and_no_traceback() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert len(runner.run(_ask(serve))) == TRIES


def test_a_service_that_leaves_before_it_is_asked_gives_no_answer_and_no_traceback() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert len(runner.run(_ask(serve))) == TRIES
