"""Start a child process, keep it running, send it commands and hand its answers on.

This is the main process's side of a child. A child has no port, and ends with the main process even
at kill -9 (:mod:`.process`). If a child dies, it is started again after pauses that grow; commands
are answered 503 meanwhile. :mod:`.packets` defines how the two processes talk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

from srmp_spark.errors import ApiError
from srmp_spark.logs.form import form_of_this_process
from srmp_spark.queue_manager.child.encoding import Encoding, decode, encode
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.child.packets import (
    BEGIN,
    COMMAND_MAX,
    DATA,
    END,
    END_OF_COMMAND,
    LONG_COMMAND,
    PACKET_MAX,
    REFUSAL,
    WHOLE,
    Refusal,
    Start,
    packets_of,
)

RESTART_SECONDS = (0.2, 1.0, 5.0, 30.0)
"""Pauses before a child that died is started again, in seconds. The last pause repeats."""
HEALTHY_SECONDS = 60.0
"""Seconds after which a running child counts as healthy.

If such a child dies, the pauses begin with the first one again.
"""
STOP_SECONDS = 5.0
"""Seconds that the child gets to finish its work when the main process stops.

After that it is killed.
"""
ANSWER_SECONDS = 60.0
"""Longest silence of the child within one answer, in seconds.

After that the answer counts as cut off.
"""

log = logging.getLogger(__name__)

_Command = TypeVar("_Command")
_Event = TypeVar("_Event")
_Answer = TypeVar("_Answer")


class ReadRefusedError(ConnectionResetError):
    """Raised when the child breaks off an answer that has begun, and states why.

    ``refusal`` is the error that the child reported.
    """

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(f"a read was cut off: {refusal}")
        self.refusal = refusal


class ChildLink(Generic[_Command, _Event]):
    """Starts one child, keeps the child running, and talks to it.

    A subclass names the child's module, and the commands and events of the child.
    """

    module: str
    """The module that the child runs with ``python -m``. It calls :func:`.process.run_child`."""
    noun: str
    """The name of the child in log lines and error messages."""
    commands: Encoding[_Command]
    events: Encoding[_Event]
    environment: Mapping[str, str] = {}
    """Environment variables for the child. A variable that is already set keeps its value."""
    restart_seconds: Sequence[float] = RESTART_SECONDS

    def __init__(self, settings: object, on_event: Callable[[_Event], object]) -> None:
        """Prepare the link without starting the child.

        ``settings`` is a dataclass that the child gets when it starts. ``on_event`` is called with
        each event that the child sends.
        """
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

    def use_settings(self, settings: object) -> None:
        """Give ``settings`` to each child that is started from now on."""
        self._settings = settings

    @property
    def is_up(self) -> bool:
        """Return whether there is a child to which commands can be sent.

        It is False while a child that died is being restarted.
        """
        return self._control is not None

    def start(self) -> None:
        """Start the child, and a task that starts it again whenever it has died.

        If the first start fails, an error is logged and the task tries again.
        """
        self._try_to_spawn()
        self._keeper = self._loop.create_task(self._keep())

    async def stop(self) -> None:
        """End the child, and wait until it has ended.

        The child is killed if it still runs STOP_SECONDS after its command socket was closed.
        """
        self._stopping = True
        if self._control is not None:
            self._control.close()  # The child ends when its command socket is closed.
            self._control = None
        await end([self._keeper])  # The outcome of the keeper does not matter.
        process = self._process
        if process is not None:
            try:
                await self._loop.run_in_executor(None, process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                await self._loop.run_in_executor(None, process.wait)

    def _try_to_spawn(self) -> None:
        """Start the child.

        Log an error if the operating system refuses, such as for lack of memory.

        There is no child then until :meth:`_keep` tries again.
        """
        try:
            self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            log.error('%s.not_started reason="%s"', self.noun, error)  # noqa: TRY400  # the reason says it all

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            descriptors = {name: each.fileno() for name, each in self._inherited().items()}
            form = form_of_this_process()
            start = Start(os.getpid(), descriptors, self.noun, form, self._settings)
            # A file and not an argument, because every user can see the arguments.
            with os.fdopen(os.memfd_create("settings"), "wb+") as file:
                file.write(encode(start))
                file.seek(0)
                # Standard output carries only the ready line of this process.
                self._process = subprocess.Popen(  # noqa: S603  # this interpreter and a module of srmp-spark
                    [sys.executable, "-m", self.module, str(theirs.fileno())],
                    env={**self.environment, **os.environ},
                    pass_fds=[theirs.fileno(), *descriptors.values()],
                    stdin=file,
                    stdout=sys.stderr.fileno(),
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours
        self._spawned()

    def _inherited(self) -> Mapping[str, socket.socket]:
        """Return the sockets that a new child inherits, by name. A subclass overrides this method.

        The link does not close this process's copies of the sockets; the subclass or its owner
        must.
        """
        return {}

    def _spawned(self) -> None:
        """Do nothing.

        A subclass overrides this method, which is called after the start of a new child.
        """

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
        """Wait until the child has ended, and return its process id and exit code.

        Return ``(None, None)`` at once if the child could not be started. The exit code is ``None``
        if this link is being stopped.
        """
        process = self._process
        if self._control is None or process is None:
            return None, None
        await self._listen()
        if self._stopping:
            return process.pid, None
        return process.pid, await self._loop.run_in_executor(None, process.wait)

    async def _listen(self) -> None:
        """Call ``on_event`` with each event from the child.

        Return when the child closes the command socket. An exception of ``on_event`` is logged.
        """
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
                self._on_event(self.events.decode(packet))
            except Exception:  # A bad event must not cut the link.
                log.exception("%s.event_failed", self.noun)

    # --- commands ---------------------------------------------------------------------------------

    def _send(self, command: bytes) -> socket.socket:
        """Send a command packet, and return this process's end of the socket for its answer.

        Raises :class:`ApiError` (503) if the child is being restarted or is overloaded.
        """
        control = self._control
        if control is None:
            raise self._unavailable("is being restarted")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            socket.send_fds(control, [command], [theirs.fileno()])
        except BlockingIOError:
            ours.close()
            raise self._unavailable("is overloaded") from None
        except OSError:
            ours.close()
            raise self._unavailable("is being restarted") from None
        finally:
            theirs.close()
        return ours

    def tell(self, command: _Command) -> bool:
        """Send a command that has no answer, and return whether it could be sent.

        The result is ``False`` if there is no child or the child is overloaded. It says nothing
        about the execution: the command is lost if the child dies first, because a new child does
        not get the commands of the old one.
        """
        control = self._control
        if control is None:
            return False
        try:
            control.send(self.commands.encode(command))
        except OSError:  # The child is overloaded or gone.
            return False
        return True

    async def _packet(self, answer: socket.socket) -> bytes:
        try:
            return await asyncio.wait_for(
                self._loop.sock_recv(answer, PACKET_MAX + 1), ANSWER_SECONDS
            )
        except (OSError, asyncio.TimeoutError):
            return b""

    async def _post(self, command: _Command) -> socket.socket:
        """Send a command of any length, and return this process's end of the socket for its answer.

        Raises :class:`ApiError` (503) if there is no child, or if the child accepts no packet of a
        long command for ANSWER_SECONDS.
        """
        packets = packets_of(self.commands.pieces(command))
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

    async def ask(
        self, command: _Command, kind: type[_Answer], *, seconds: float | None = None
    ) -> _Answer:
        """Send a command that the child answers with one packet, and return the answer.

        The answer is of the type ``kind``. ``seconds`` is the longest wait for the answer, by
        default ANSWER_SECONDS. Raises :class:`ApiError`: the child's refusal, or 503 if the child
        does not answer.
        """
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
        self._check_answered(packet, WHOLE)
        return decode(packet[1:], kind)

    async def ask_long(self, command: _Command, kind: type[_Answer], *, seconds: float) -> _Answer:
        """Send a command that the child answers at any length, and return the answer.

        The child writes the answer with :meth:`.AnswerWriter.whole`. ``seconds`` is the longest
        wait for the whole answer. Raises as :meth:`ask`, and :class:`ConnectionResetError` if the
        answer is cut off after its head.
        """
        return decode(await self.ask_for_text(command, seconds=seconds), kind)

    async def ask_for_text(self, command: _Command, *, seconds: float) -> bytes:
        """Send a command that the child answers at any length, and return the answer as JSON text.

        The main process does not parse the answer. Raises as :meth:`ask_long`.
        """
        try:
            return await asyncio.wait_for(self._text(command), seconds)
        except asyncio.TimeoutError:
            raise self._unavailable("does not answer") from None

    async def _text(self, command: _Command) -> bytes:
        answer = await self._post(command)
        try:
            packet = await self._packet(answer)
            self._check_answered(packet, WHOLE, BEGIN)
        except BaseException:
            answer.close()
            raise
        if packet[:1] == WHOLE:
            answer.close()
            return packet[1:]
        return b"".join([piece async for piece in self._pieces(answer)])

    async def open(self, command: _Command) -> AsyncGenerator[bytes, None]:
        """Send a command that the child answers with data, and return the data when it begins.

        The data is an iterator of byte strings. It raises :class:`ConnectionResetError` if the
        answer is cut off: :class:`ReadRefusedError` if the child gave a reason. Close the iterator
        to abandon the answer. Raises :class:`ApiError`: the child's refusal, or 503 if the child
        does not answer.
        """
        return self._pieces(await self._begun(command))

    async def open_direct(self, command: _Command) -> DirectAnswer:
        """Send a command whose data the child will write into the connection of the HTTP client.

        Return the answer when its data begins. It waits for the client's connection
        (:meth:`DirectAnswer.write_to`). Raises :class:`ApiError`: the child's refusal, or 503 if
        the child does not answer.
        """
        return DirectAnswer(await self._begun(command), self.noun)

    async def _begun(self, command: _Command) -> socket.socket:
        """Send a command, and return the socket of its answer after the answer has begun."""
        answer = await self._post(command)
        try:
            self._check_answered(await self._packet(answer), BEGIN)
        except BaseException:
            answer.close()
            raise
        return answer

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

    def _check_answered(self, packet: bytes, *kinds: bytes) -> None:
        """Raise :class:`ApiError` unless the first packet of an answer is one of ``kinds``."""
        if packet[:1] == REFUSAL:
            raise _refusal(packet[1:])
        if packet[:1] not in kinds:
            raise self._unavailable("went away")

    def _unavailable(self, what: str) -> ApiError:
        message = f"the {self.noun} process {what}"
        return ApiError(
            503, f"{self.noun}-unavailable", message, "try again", "INTERFACE.md section 3"
        )


class DirectAnswer:
    """An answer that the child has begun, without any data yet.

    Close it when done.
    """

    def __init__(self, answer: socket.socket, noun: str) -> None:
        self._answer = answer
        self._noun = noun

    async def write_to(self, descriptor: int) -> None:
        """Wait while the child writes all data into a socket, as chunks of HTTP.

        The last, empty chunk is left to the caller. ``descriptor`` is the file descriptor of the
        socket. No other code may write into it meanwhile. Raises :class:`ConnectionResetError` if
        the answer is incomplete: :class:`ReadRefusedError` if the child gave a reason. This wait
        has no time limit, because an HTTP client may accept its data slowly. The child disconnects
        a client that accepts no data for :data:`.answer.STALL_SECONDS` or less.
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
        """Close the socket of the answer. The child then stops writing."""
        self._answer.close()


def _cut_off(noun: str) -> ConnectionResetError:
    return ConnectionResetError(f"a read was cut off: the {noun} process went away")


def _refusal(text: bytes) -> ApiError:
    refusal = decode(text, Refusal)
    return ApiError(
        refusal.status, refusal.code, refusal.message, refusal.hint, "INTERFACE.md section 3"
    )
