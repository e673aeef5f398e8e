"""SOAP over HTTP to services that speak, or leave, before they are asked (``make attack`` found it)."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
import uvloop

from srmp_spark.queue_manager.sender.http.addresses import HostAddresses
from srmp_spark.queue_manager.sender.reliable import soap_connection
from srmp_spark.queue_manager.sender.reliable.soap_connection import (
    NoAnswerError,
    SoapClientConnection,
)
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.wsrm.codec.elements import SoapMessage
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

TRIES = 30
"""Connections of one test: whether the service is heard before the request is written is a race."""
MESSAGE = SoapMessage(
    soap=SoapVersion.V1_2,
    addressing=AddressingVersion.V2005_08,
    rm=RmVersion.V1_1,
    action="urn:a",
    body=b"<n/>",
)


async def _ask(serve: object) -> list[NoAnswerError]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # type: ignore[arg-type]  # a callback
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"
    refused: list[NoAnswerError] = []
    for _ in range(TRIES):
        connection = SoapClientConnection(
            url,
            HostAddresses(asyncio.get_running_loop()),
            ClientTls(),
            lambda destination: destination,
        )
        with pytest.raises(NoAnswerError) as raised:
            await asyncio.wait_for(connection.post(MESSAGE), 10)
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


def test_a_late_answer_is_not_taken_for_that_of_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soap_connection, "ANSWER_SECONDS", 0.3)

    async def run() -> None:
        served, is_late = 0, asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: (\d+)", head)
                    assert length is not None
                    await reader.readexactly(int(length[1]))
                    number, served = served, served + 1
                    if number == 1:
                        await is_late.wait()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"
        connection = SoapClientConnection(
            url,
            HostAddresses(asyncio.get_running_loop()),
            ClientTls(),
            lambda destination: destination,
        )
        assert (await connection.post(MESSAGE)).body == b"0"
        with pytest.raises(NoAnswerError, match="no answer in 0 s") as raised:
            await connection.post(MESSAGE)
        assert raised.value.left
        next_one = asyncio.create_task(connection.post(MESSAGE))
        await asyncio.sleep(0)
        is_late.set()
        assert (await next_one).body == b"2"
        connection.close()
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 20))
