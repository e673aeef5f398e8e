"""What the reader and the sender share: commands and answers of any length, and a keeper that nothing ends but the stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.child import link as link_module
from srmp_spark.queue_manager.child.answer import REFUSAL_TEXT_MAX, AnswerWriter
from srmp_spark.queue_manager.child.commands import read_long_command, receive_command
from srmp_spark.queue_manager.child.encoding import Encoding
from srmp_spark.queue_manager.child.link import ChildLink, ReadRefusedError
from srmp_spark.queue_manager.child.packets import COMMAND_MAX, LONG_COMMAND, PACKET_MAX

LONG = "\u4e00" * PACKET_MAX
"""Longer than a packet and than a command, however it is written."""


@dataclass(frozen=True, slots=True)
class Echo:
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    pass


COMMANDS: Encoding[Echo | Notice] = Encoding({"echo": Echo, "notice": Notice})


class Child(ChildLink[Echo | Notice, Notice]):
    module = "no.such.module"
    noun = "helper"
    commands = COMMANDS
    events: Encoding[Notice] = Encoding({})


def asked(command: Echo, answer: Callable[[AnswerWriter, Any], None]) -> Echo:
    """Ask a child that is a thread here: what it answered."""

    async def main() -> Echo:
        link = Child(None, lambda event: None)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        link._control = ours

        def serve() -> None:
            received = receive_command(theirs)
            assert received is not None
            writer = received.answer
            assert writer is not None
            assert (received.packet == LONG_COMMAND) == (len(str(command)) >= COMMAND_MAX)
            packet = received.packet
            text = read_long_command(writer) if packet == LONG_COMMAND else packet
            answer(writer, COMMANDS.decode(text))
            writer.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            return await link.ask_long(command, Echo, seconds=10)
        finally:
            thread.join(10)
            ours.close()
            assert receive_command(theirs) is None, "the end of the command socket"
            theirs.close()

    return asyncio.run(main())


def test_a_long_command_arrives_whole_and_a_long_answer_goes_back_whole() -> None:
    for sent in (Echo(LONG), Echo("short"), Echo("half of a pair: \ud800")):
        assert asked(sent, lambda writer, command: writer.whole(command)) == sent


def test_a_refusal_comes_before_the_head_or_in_the_middle_and_its_words_are_cut() -> None:
    with pytest.raises(ApiError) as refused:
        asked(Echo("x"), lambda writer, command: writer.refuse(409, "damaged", LONG, LONG))
    assert (refused.value.status, refused.value.code) == (409, "damaged")
    assert len(refused.value.message) == len(refused.value.hint) == REFUSAL_TEXT_MAX

    def break_off(writer: AnswerWriter, command: Echo) -> None:
        writer.begin()
        writer.write(b"{")
        writer.refuse(503, "store", "gone", "try again")

    with pytest.raises(ReadRefusedError) as cut:
        asked(Echo("x"), break_off)
    assert (cut.value.refusal.status, cut.value.refusal.hint) == (503, "try again")


def test_an_answer_without_its_end_was_cut_off() -> None:
    def leave(writer: AnswerWriter, command: Echo) -> None:
        writer.begin()
        writer.write(b'{"text": "a"}')
        writer.flush()

    with pytest.raises(ConnectionResetError, match="helper process went away"):
        asked(Echo("x"), leave)


def test_a_child_that_says_nothing_in_time_did_not_go_away() -> None:
    async def main() -> None:
        link = Child(None, lambda event: None)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        link._control = ours
        with ours, theirs:
            with pytest.raises(ApiError, match="helper process does not answer"):
                await link.ask(Notice(), Echo, seconds=0.01)
            received = receive_command(theirs)
            assert received is not None
            assert received.answer is not None
            received.answer.close()
            asking = asyncio.ensure_future(link.ask(Notice(), Echo, seconds=10))
            await asyncio.sleep(0)
            received = receive_command(theirs)
            assert received is not None
            assert received.answer is not None
            received.answer.close()
            with pytest.raises(ApiError, match="helper process went away"):
                await asking

    asyncio.run(main())


def test_a_command_that_is_told_has_no_answer_and_one_that_is_not_there_yet_blocks_nobody() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(COMMANDS.encode(Notice()))
        assert receive_command(theirs) == (b'{"@":"notice"}', None)
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            receive_command(theirs)


def test_a_child_that_cannot_be_started_is_tried_again_and_stop_is_quiet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[object] = []

    def no_memory(*args: object, **options: object) -> None:
        tries.append(args)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", no_memory)
    monkeypatch.setattr(link_module, "RESTART_SECONDS", (0.0, 0.01))

    async def main() -> None:
        link = Child(None, lambda event: None)
        link.start()
        while len(tries) < 3:
            await asyncio.sleep(0.01)
        assert not link.is_up
        with pytest.raises(ApiError, match="being restarted"):
            await link.ask(Notice(), Echo)
        await asyncio.wait_for(link.stop(), 5)

    with caplog.at_level(logging.ERROR):
        asyncio.run(asyncio.wait_for(main(), 10))
    assert "helper.not_started" in caplog.text
    assert "Cannot allocate memory" in caplog.text
