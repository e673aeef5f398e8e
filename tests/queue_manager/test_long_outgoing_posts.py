"""``POST outgoing/messages`` with all that one call may have, and the bodies of calls that need less."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_long_posts import TURN_SHARE_MAX, pieces_of, turns_of_the_loop

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.api.consumers import ConsumersApi
from srmp_spark.queue_manager.api.outgoing import MESSAGES_MAX, SERIALS_MAX, OutgoingApi
from srmp_spark.queue_manager.api.port_side.http import (
    MARKS_BODY_MAX,
    NESTED_MAX,
    SERIALS_BODY_MAX,
    Request,
)
from srmp_spark.queue_manager.child.commands import read_long_command, receive_command
from srmp_spark.queue_manager.child.encoding import ItemTexts
from srmp_spark.queue_manager.child.packets import LONG_COMMAND, PACKET_MAX, packets_of
from srmp_spark.queue_manager.queues.consumers import SEQUENCES_MAX
from srmp_spark.queue_manager.sender.crossing import SENDER_COMMANDS, FindStates, SendMessages
from srmp_spark.queue_manager.sender.link import SenderLink
from srmp_spark.queue_manager.slices import Slices


class Child:
    """A child that answers each command with as many numbers as it had messages, and remembers it."""

    def __init__(self) -> None:
        self.commands: list[SendMessages] = []
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.link = SenderLink(None, lambda _: None)
        self.link._control = ours
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (received := receive_command(self._theirs)) is not None:
            assert received.answer is not None
            is_long = received.packet == LONG_COMMAND
            text = read_long_command(received.answer) if is_long else received.packet
            command = SENDER_COMMANDS.decode(text)
            assert isinstance(command, SendMessages)
            self.commands.append(command)
            received.answer.whole([{"message_id": f"n\\{n}"} for n in range(len(command.messages))])
            received.answer.close()

    async def ask_for_text(self, command: SendMessages) -> bytes:
        return await self.link.ask_for_text(command, seconds=60)

    def close(self) -> None:
        assert self.link._control is not None
        self.link._control.close()
        self._theirs.close()


def with_child(test: Callable[[Any, Child], Awaitable[None]]) -> None:
    async def run() -> None:
        child = Child()
        manager = SimpleNamespace(slices=Slices(), gate=Gate(), outgoing=child)
        try:
            await test(manager, child)
        finally:
            child.close()

    asyncio.run(run())


async def post(manager: Any, pieces: list[bytes]) -> Any:
    async def given_pieces(_limit: int) -> list[bytes]:
        return pieces

    request: Any = SimpleNamespace(pieces=given_pieces, caller="t")
    return json.loads((await OutgoingApi(manager).messages(request)).body)


@pytest.mark.parametrize(("count", "size"), [(MESSAGES_MAX, 1), (12, 3_900_000)])
def test_the_loop_has_its_turns(count: int, size: int) -> None:
    body = base64.b64encode(b"x" * size).decode()
    text = json.dumps(
        [
            {"destination": "http://h/msmq/q", "body_base64": body, "key": f"{n}"}
            for n in range(count)
        ]
    )
    pieces, turns = pieces_of(text.encode()), [0.0, 0.0]

    async def test(manager: Any, child: Child) -> None:
        async with turns_of_the_loop(turns):
            answer = await OutgoingApi(manager).messages(request)
        assert len(json.loads(answer.body)) == count
        assert [each["key"] for each in child.commands[0].messages] == [
            f"{n}" for n in range(count)
        ]
        assert all(each["body_base64"] == body for each in child.commands[0].messages)

    async def given_pieces(_limit: int) -> list[bytes]:
        return pieces

    request: Any = SimpleNamespace(pieces=given_pieces, caller="t")
    with_child(test)
    longest, all_turns = turns
    assert longest < all_turns * TURN_SHARE_MAX, (
        f"{longest * 1e3:.0f} ms of {all_turns * 1e3:.0f} ms"
    )


@pytest.mark.parametrize("padding", [0, 70_000])
@pytest.mark.parametrize(
    "messages",
    [
        {"destination": "a"},
        [
            {"destination": "ä\u2028€😀\\", "label": '"]}'},
            {"@": "operate", "messages": [1, {"x": None}]},
        ],
    ],
)
def test_messages_cross_as_they_were_sent(messages: Any, padding: int) -> None:
    async def test(manager: Any, child: Child) -> None:
        found = await post(
            manager, [b" " * padding, json.dumps(messages, ensure_ascii=False).encode()]
        )
        wanted = messages if isinstance(messages, list) else [messages]
        assert child.commands == [SendMessages("t", wanted)]
        assert [each["message_id"] for each in found] == [f"n\\{n}" for n in range(len(wanted))]

    with_child(test)


@pytest.mark.parametrize("padding", [0, 70_000])
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("[]", 400, "1 to 10000 messages"),
        ("[" + ",".join(["{}"] * (MESSAGES_MAX + 1)) + "]", 400, "1 to 10000 messages"),
        ('[{}],"@":"operate","messages":[{}]', 400, "not JSON"),
        ('{},"@":"operate"', 400, "not JSON"),
        ('{}]},{"a":[{}', 400, "not JSON"),
    ],
)
def test_what_is_no_list_of_messages_does_not_cross(
    text: str, status: int, said: str, padding: int
) -> None:
    async def test(manager: Any, child: Child) -> None:
        with pytest.raises(ApiError, match=said) as error:
            await post(manager, [b" " * padding, text.encode()])
        assert error.value.status == status
        assert child.commands == []

    with_child(test)


@given(
    token=st.none() | st.text(max_size=3),
    items=st.lists(st.one_of(st.text(max_size=9), st.just("x" * PACKET_MAX)), max_size=5),
)
def test_packets_of_a_long_command_are_the_command(token: str | None, items: list[str]) -> None:
    texts = ItemTexts([json.dumps(each).encode() for each in items])
    packets = [*packets_of(SENDER_COMMANDS.pieces(SendMessages(token, texts)))]
    assert SENDER_COMMANDS.decode(b"".join(packets)) == SendMessages(token, items)
    assert all(len(each) == PACKET_MAX for each in packets[:-1])
    states = FindStates(token or "", "stream", [2**70], 0.5)
    assert [*packets_of(SENDER_COMMANDS.pieces(states))] == [SENDER_COMMANDS.encode(states)]
    assert SENDER_COMMANDS.decode(SENDER_COMMANDS.encode(states)) == states


# --- calls that need less ---------------------------------------------------------------------------------------------------


def request_of(text: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": text, "more_body": False}

    return Request("POST", "/", {"queue": "q", "consumer": "c"}, {}, {}, receive)


def test_what_the_calls_may_hold_fits_their_limits() -> None:
    marks = {
        "epoch": "e" * 32,
        "holder": {"name": "x" * 1_000},
        "sequences": [2**63 - 1] * SEQUENCES_MAX,
    }
    assert len(json.dumps(marks)) < MARKS_BODY_MAX
    serials = {"destination": "h" * 2_048, "serials": [2**63 - 1] * SERIALS_MAX}
    assert len(json.dumps(serials)) < SERIALS_BODY_MAX


@pytest.mark.parametrize("call", ["received", "states"])
def test_a_body_of_more_than_its_call_can_use_is_refused(call: str) -> None:
    manager: Any = SimpleNamespace()
    handler = ConsumersApi(manager).received if call == "received" else OutgoingApi(manager).states
    limit = MARKS_BODY_MAX if call == "received" else SERIALS_BODY_MAX
    for text, said in (
        (b" " * (limit + 1), str(limit)),
        (b'{"a":[%b0]}' % (b"{}," * NESTED_MAX), "NESTED_MAX"),
    ):
        with pytest.raises(ApiError, match=said) as error:
            asyncio.run(handler(request_of(text)))
        assert error.value.status == 413
