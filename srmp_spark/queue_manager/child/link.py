"""The main process's side of a child process: it is started, kept running, given commands, and its answers are handed on.

It holds no port, ends with us even at kill -9 (:mod:`.process`), and is started again with growing pauses if it dies; commands
answer 503 meanwhile. :mod:`.packets` says how the two talk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.child.packets import (
    COMMAND_MAX,
    DATA,
    END,
    END_OF_COMMAND,
    HEAD,
    LONG_COMMAND,
    PACKET_MAX,
    REFUSAL,
    LongList,
    long_command,
)

RESTART_SECONDS = (0.2, 1.0, 5.0, 30.0)
"""Pauses before a child that died is started again; the last one repeats."""
HEALTHY_SECONDS = 60.0
"""A child that lived so long starts the pauses anew when it dies."""
STOP_SECONDS = 5.0
"""What the child gets to finish at the end, before it is killed."""
ANSWER_SECONDS = 60.0
"""Longest silence of the child within one answer."""

log = logging.getLogger(__name__)

Event = dict[str, Any]


class ReadRefusedError(ConnectionResetError):
    """The child could not go on in the middle of an answer; ``refusal`` is what it said."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(f"a read was cut off: {refusal}")
        self.refusal = refusal


class ChildLink:
    """Starts a child, keeps it running, and talks to it. A subclass says which."""

    module: str
    """What the child runs: ``python -m``; its entry is :func:`.process.run_child`."""
    noun: str
    """What logs and errors call it."""
    environment: Mapping[str, str] = {}
    """Variables for the child that are not set otherwise."""
    restart_seconds: Sequence[float] = RESTART_SECONDS

    def __init__(self, settings: dict[str, Any], on_event: Callable[[Event], object]) -> None:
        """``settings`` go to the child as JSON; ``on_event`` gets what it tells unasked."""
        self._settings = settings
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False
        self.restarts = 0

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} pid={self._process.pid if self._process else None}"
            f" restarts={self.restarts}>"
        )

    @property
    def is_up(self) -> bool:
        """Whether commands can be sent."""
        return self._control is not None

    def start(self) -> None:
        """Start the child and keep it running."""
        self._try_to_spawn()
        self._keeper = self._loop.create_task(self._keep())

    async def stop(self) -> None:
        """End the child."""
        self._stopping = True
        if self._control is not None:
            self._control.close()  # the end of its command socket tells it
            self._control = None
        await end([self._keeper])  # however it went
        process = self._process
        if process is not None:
            try:
                await self._loop.run_in_executor(None, process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                await self._loop.run_in_executor(None, process.wait)

    def _try_to_spawn(self) -> None:
        """Start the child; without memory, processes or descriptors for it there is none until the keeper tries again."""
        try:
            self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            log.error('%s.not_started reason="%s"', self.noun, error)  # noqa: TRY400  # the reason says it all

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            descriptors = {name: each.fileno() for name, each in self._inherited().items()}
            settings = json.dumps(
                self._settings | {"parent": os.getpid(), "descriptors": descriptors}
            )
            with os.fdopen(
                os.memfd_create("settings"), "w+", encoding="utf-8"
            ) as file:  # no argument: all may see those
                file.write(settings)
                file.seek(0)
                self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
                    [sys.executable, "-m", self.module, str(theirs.fileno())],
                    env={**self.environment, **os.environ},
                    pass_fds=[theirs.fileno(), *descriptors.values()],
                    stdin=file,
                    stdout=sys.stderr.fileno(),  # standard output is ours alone: one JSON line
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours
        self._spawned()

    def _inherited(self) -> Mapping[str, socket.socket]:
        """Return the sockets that a new child inherits, by name. They stay this process's to close."""
        return {}

    def _spawned(self) -> None:
        """Do what has to be done once a new child runs."""

    async def _keep(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            pid, code = await self._end()
            if self._stopping:
                return
            failures = 0 if time.monotonic() - started > HEALTHY_SECONDS else failures + 1
            pause = self.restart_seconds[min(failures, len(self.restart_seconds) - 1)]
            log.error("%s.died pid=%s code=%s restart_in=%s", self.noun, pid, code, pause)
            await asyncio.sleep(pause)
            self.restarts += 1
            self._try_to_spawn()

    async def _end(self) -> tuple[int | None, int | None]:
        """Wait until the child has ended; its process id and exit code. At once if it could not be started."""
        process = self._process
        if self._control is None or process is None:
            return None, None
        await self._listen()
        if self._stopping:
            return process.pid, None
        return process.pid, await self._loop.run_in_executor(None, process.wait)

    async def _listen(self) -> None:
        """Events of the child, until it closes the socket."""
        control = self._control
        assert control is not None
        while True:
            try:
                packet = await self._loop.sock_recv(control, PACKET_MAX)
            except OSError:
                packet = b""
            if not packet:
                if self._control is control:
                    self._control = None
                control.close()
                return
            try:
                self._on_event(json.loads(packet))
            except Exception:  # an event that we cannot handle must not cut the link
                log.exception("%s.event_failed", self.noun)

    # --- commands -----------------------------------------------------------------------------------------------------------

    def _send(self, command: bytes) -> socket.socket:
        """Send a command; our end of its answer."""
        control = self._control
        if control is None:
            raise self._unavailable("is being restarted")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            socket.send_fds(control, [command], [theirs.fileno()])
        except BlockingIOError:
            ours.close()
            raise self._unavailable("has too much to do") from None
        except OSError:
            ours.close()
            raise self._unavailable("is being restarted") from None
        finally:
            theirs.close()
        return ours

    def tell(self, command: dict[str, Any]) -> bool:
        """Send a command that has no answer; whether the child can get it. One that is started anew begins without."""
        control = self._control
        if control is None:
            return False
        try:
            control.send(json.dumps(command).encode())
        except OSError:  # it has too much to do, or is gone
            return False
        return True

    async def _packet(self, answer: socket.socket) -> bytes:
        try:
            return await asyncio.wait_for(
                self._loop.sock_recv(answer, PACKET_MAX + 1), ANSWER_SECONDS
            )
        except (OSError, asyncio.TimeoutError):
            return b""

    async def _post(self, command: dict[str, Any], extra: LongList | None = None) -> socket.socket:
        """Send a command of any length; our end of its answer."""
        packets = long_command(command, extra)
        first = next(packets)
        if len(first) < COMMAND_MAX:
            return self._send(first)
        answer = self._send(LONG_COMMAND)
        try:
            for packet in chain((first,), packets):
                await asyncio.wait_for(self._loop.sock_sendall(answer, packet), ANSWER_SECONDS)
            await asyncio.wait_for(self._loop.sock_sendall(answer, END_OF_COMMAND), ANSWER_SECONDS)
        except (OSError, asyncio.TimeoutError):
            answer.close()
            raise self._unavailable("went away") from None
        except BaseException:
            answer.close()
            raise
        return answer

    async def ask(self, command: dict[str, Any], *, seconds: float | None = None) -> dict[str, Any]:
        """A command whose whole answer is its head. ``seconds``: longest wait, default ANSWER_SECONDS."""
        answer = await self._post(command)
        try:
            packet = await asyncio.wait_for(
                self._loop.sock_recv(answer, PACKET_MAX + 1), seconds or ANSWER_SECONDS
            )
        except asyncio.TimeoutError:
            raise self._unavailable("does not answer") from None
        except OSError:
            packet = b""
        finally:
            answer.close()
        return self._head(packet)

    async def ask_long(self, command: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        """The same for an answer that may be longer than a packet."""
        try:
            return await asyncio.wait_for(self._ask_long(command), seconds)
        except asyncio.TimeoutError:
            raise self._unavailable("does not answer") from None

    async def ask_for_list(
        self, command: dict[str, Any], extra: LongList, *, seconds: float
    ) -> bytes:
        """Send a command with a long list; return the list of the same name that answers it: JSON, which nobody here parses."""
        try:
            return await asyncio.wait_for(self._ask_for_list(command, extra), seconds)
        except asyncio.TimeoutError:
            raise self._unavailable("does not answer") from None

    async def _ask_for_list(self, command: dict[str, Any], extra: LongList) -> bytes:
        head, pieces = await self.open(command, extra)
        if "long" not in head:
            await pieces.aclose()
            return json.dumps(head[extra.name], separators=(",", ":")).encode()
        text = b"".join([piece async for piece in pieces])
        begin = b'{"%b": ' % extra.name.encode()
        if not text.startswith(begin):
            raise ValueError(
                f"the {self.noun} process answers {text[:40]!r}, no list of {extra.name}"
            )
        return text[len(begin) : -1]

    async def _ask_long(self, command: dict[str, Any]) -> dict[str, Any]:
        head, pieces = await self.open(command)
        if "long" not in head:
            await pieces.aclose()
            return head
        text = b"".join([piece async for piece in pieces])
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def open(
        self, command: dict[str, Any], extra: LongList | None = None
    ) -> tuple[dict[str, Any], AsyncGenerator[bytes, None]]:
        """A command that is answered with data: its head and the pieces.

        The pieces end with :class:`ConnectionResetError` if the answer is cut off, as :class:`ReadRefusedError` if the child
        said why. Close the iterator to give up. ``extra`` belongs to the command.
        """
        answer = await self._post(command, extra)
        try:
            head = self._head(await self._packet(answer))
        except BaseException:
            answer.close()
            raise
        return head, self._pieces(answer)

    async def open_direct(self, command: dict[str, Any]) -> DirectAnswer:
        """A command whose data the child will write into the caller's connection itself. Raises what the child refused."""
        answer = await self._post(command)
        try:
            self._head(await self._packet(answer))
        except BaseException:
            answer.close()
            raise
        return DirectAnswer(answer, self.noun)

    async def _pieces(self, answer: socket.socket) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                packet = await self._packet(answer)
                kind = packet[:1]
                if kind == DATA:
                    yield packet[1:]
                elif kind == END:
                    return
                elif kind == REFUSAL:
                    raise ReadRefusedError(_refusal(packet[1:]))
                else:
                    raise _cut_off(self.noun)
        finally:
            answer.close()

    def _head(self, packet: bytes) -> dict[str, Any]:
        kind, text = packet[:1], packet[1:]
        if kind == HEAD:
            head: dict[str, Any] = json.loads(text)
            return head
        if kind == REFUSAL:
            raise _refusal(text)
        raise self._unavailable("went away")

    def _unavailable(self, what: str) -> ApiError:
        message = f"the {self.noun} process {what}"
        return ApiError(
            503, f"{self.noun}-unavailable", message, "try again", "INTERFACE.md section 3"
        )


class DirectAnswer:
    """An answer whose head has come and whose data is still to be written. Close it when done."""

    def __init__(self, answer: socket.socket, noun: str) -> None:
        self._answer = answer
        self._noun = noun

    async def write_to(self, descriptor: int) -> None:
        """Let the child write all data into a socket, as chunks of HTTP without the last one; nobody else may write there.

        Raises :class:`ConnectionResetError` if it did not come to the end, as :class:`ReadRefusedError` if the child said why.
        No limit of time: a caller may take its data slowly; one that takes none is given up by the child.
        """
        try:
            socket.send_fds(self._answer, [b"S"], [descriptor])
            packet = await asyncio.get_running_loop().sock_recv(self._answer, PACKET_MAX + 1)
        except OSError:
            packet = b""
        if packet[:1] == REFUSAL:
            raise ReadRefusedError(_refusal(packet[1:]))
        if packet[:1] != END:
            raise _cut_off(self._noun)

    def close(self) -> None:
        """Give it up."""
        self._answer.close()


def _cut_off(noun: str) -> ConnectionResetError:
    return ConnectionResetError(f"a read was cut off: the {noun} process went away")


def _refusal(text: bytes) -> ApiError:
    refusal = json.loads(text)
    return ApiError(
        refusal["status"],
        refusal["code"],
        refusal["message"],
        refusal.get("hint", ""),
        "INTERFACE.md section 3",
    )
