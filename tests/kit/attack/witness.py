"""The witness: a good client of the ports during the attack.

A late or lost answer is a finding. ::

    python -m tests.kit.attack.witness < commands

Commands and reports are JSON objects, one a line. The witness is a separate process, so that the
work of the attack delays no measurement.

The witness subtracts two kinds of delay from a measured time. The first one is the delay of the
machine: a control process, which only answers, is asked at the same time as ``/healthz``. The
second one is the time in which threads of the target could run but had no core, as the kernel
counts it. The loop of the target also waits for a thread that holds Python's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from srmp_spark.mqrr.rpc.pdu import PduType
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from tests.kit.attack.judge import HEALTHZ_MAX, HONEST_MAX, OPTIONAL_MAX
from tests.kit.attack.machine import Patience, waited_in_turn
from tests.kit.attack.scene import ADMIN_TOKEN, HONEST, SHARED
from tests.kit.attack.soap import MIME, VERSIONS, envelope_of
from tests.kit.attack.walkers.playing import http_request
from tests.kit.attack.walkers.rpc import bind_pdu
from tests.kit.attack.wire import Answer, ClosedError, Connection, SilentError

WHO_SRMP, WHO_WSRM, WHO_API, WHO_RPC = "127.0.0.20", "127.0.0.21", "127.0.0.22", "127.0.0.23"
"""Addresses of the good clients; no attacker uses them."""
PROBE_SECONDS = 0.05
LINEAGE = "0a0b0c0d-7777-7777-7777-0a0b0c0d0e0f"
MODERN = VERSIONS.index((SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_1))
CONTROL = """
import asyncio, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\
  # it ends with the witness
async def main():
    async def answer(reader, writer):
        try:
            while await reader.readuntil(b"\\r\\n\\r\\n"):
                writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
        except Exception:
            writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_ROOM = re.compile(rb"BufferRemaining[^>]*>\s*[1-9]")
_IDENTIFIER = re.compile(rb"CreateSequenceResponse.*?Identifier>\s*([^<\s]+)", re.DOTALL)


class Witness:
    """The good clients of one target, with their measurements and findings."""

    def __init__(
        self, ports: dict[str, tuple[str, int]], epoch: str, control: tuple[str, int], pid: int
    ) -> None:
        self._epoch = epoch
        self._is_registered = False
        self._ports = {name: (str(host), int(port)) for name, (host, port) in ports.items()}
        self._control = control
        self._pid = pid
        self._awake = asyncio.Event()
        self._awake.set()
        self._pauses = 0
        self.worst: dict[str, float] = {}
        self.acknowledged = 0
        """Number of messages to :data:`HONEST` that were answered 200; their numbers begin with 1.
        """
        self.identifiers: list[str] = []
        self.findings: list[dict[str, str]] = []
        self._kept: dict[str, Connection] = {}
        self._trouble = ""
        """Why the last unanswered request has no answer, attempt by attempt."""

    def pause(self) -> None:
        """Let all clients stop after their current request until :meth:`resume`.

        Called because the target is killed and started again. Findings of the pause are ignored.
        """
        self._awake.clear()
        self._pauses += 1

    def resume(self, pid: int) -> None:
        """Let all clients continue over new connections. ``pid`` is the target's new process."""
        self._pid = pid
        for each in self._kept.values():
            each.abort()
        self._kept.clear()
        self._is_registered = False
        self._awake.set()

    async def run(self) -> None:
        """Run all clients until the task is cancelled."""
        jobs = [self._loop(PROBE_SECONDS, self._healthz), self._loop(0.02, self._srmp)]
        if "wsrm" in self._ports:
            jobs += [self._loop(0.5, self._wsrm), self._loop(0.1, self._read)]
        jobs += [
            self._loop(0.5, functools.partial(self._rpc, port))
            for port in ("rpc", "mapper")
            if port in self._ports
        ]
        await asyncio.gather(*jobs)

    async def _loop(self, pause: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._awake.wait()
            await job()
            await asyncio.sleep(pause)

    def _found(self, kind: str, detail: str, pauses: int) -> None:
        if pauses == self._pauses and self._awake.is_set():
            self.findings.append({"kind": kind, "detail": detail})

    def _saw(self, what: str, seconds: float) -> None:
        self.worst[what] = max(self.worst.get(what, 0.0), seconds)

    # --- /healthz ---------------------------------------------------------------------------------

    async def _healthz(self) -> None:
        pauses, raw = self._pauses, http_request("GET", "/healthz", b"", {"Host": "127.0.0.1"})
        before = waited_in_turn(self._pid)
        asked = asyncio.gather(
            self._timed("api", raw, WHO_API, HONEST_MAX * 10),
            self._timed("control", raw, WHO_API, HONEST_MAX * 10),
        )
        (answer, seconds), (_, control) = await asked
        late = max(0.0, seconds - control - (waited_in_turn(self._pid) - before))
        if pauses != self._pauses or not self._awake.is_set():
            return
        self._saw("healthz", late)
        if answer is None or answer.status != 200:
            self._found(
                "healthz",
                f"GET /healthz: {self._no_answer() if answer is None else answer.status}",
                pauses,
            )
        elif late > HEALTHZ_MAX:
            self._found(
                "late",
                f"GET /healthz took {late * 1000:.0f} ms more than it had to for the machine",
                pauses,
            )

    async def _timed(
        self, port: str, raw: bytes, who: str, patience: float
    ) -> tuple[Answer | None, float]:
        """Send a request to ``port``; return the answer, or ``None``, and the seconds that passed.

        The request is sent over the connection that is kept for ``port``, or a new one from
        ``who``. It is repeated once over a new connection if there is no answer within ``patience``
        seconds.
        """
        address = self._control if port == "control" else self._ports[port.partition(" ")[0]]
        began = time.monotonic()
        trouble: list[str] = []
        for _ in range(2):
            connection = self._kept.pop(port, None)
            how = "a new connection" if connection is None else "a connection that was kept"
            try:
                connection = connection or await Connection.open(address, who)
                await connection.send([raw])
                answer = await connection.answer(patience)
            except (ClosedError, SilentError) as error:
                trouble.append(f"{how}: {error}")
                if connection is not None:
                    connection.abort()
                continue
            if answer.headers.get("connection", "").lower() == "close":
                connection.abort()
            else:
                self._kept[port] = connection
            return answer, time.monotonic() - began
        self._trouble = "; ".join(trouble)
        return None, time.monotonic() - began

    def _no_answer(self) -> str:
        return f"no answer ({self._trouble})"

    # --- a sender of SRMP -------------------------------------------------------------------------

    async def _srmp(self) -> None:
        number, pauses = self.acknowledged + 1, self._pauses
        host, port = self._ports["srmp"]
        message = ForeignMessage(
            to=f"http://{host}:{port}/msmq/{HONEST}",
            lineage=LINEAGE,
            uniquifier=number,
            sent_at=1_790_000_000,
            body=b"%d" % number,
        )
        if number % 10 == 0 and "srmp" in self._kept:
            self._kept.pop("srmp").abort()
        before = waited_in_turn(self._pid)
        answer, seconds = await self._timed("srmp", post(message).raw, WHO_SRMP, HONEST_MAX * 10)
        seconds -= waited_in_turn(self._pid) - before
        if answer is not None and answer.status == 200:
            self.acknowledged = number
            if pauses == self._pauses:
                self._saw("srmp", seconds)
                if seconds > HONEST_MAX:
                    self._found(
                        "slow",
                        f"a good sender's message was answered after {seconds:.1f} s",
                        pauses,
                    )
        else:
            status = (
                self._no_answer() if answer is None else f"{answer.status} {dict(answer.headers)}"
            )
            self._found("refused", f"a good sender's message: {status}", pauses)
            await asyncio.sleep(0.2)

    # --- a client of WS-ReliableMessaging ---------------------------------------------------------

    async def _wsrm(self) -> None:
        pauses, patience = self._pauses, Patience(OPTIONAL_MAX, self._pid)
        problem = "it could not begin a sequence"
        identifier = ""
        while not patience.is_over:
            answer = await self._say("CreateSequence", "", f"urn:uuid:good-{time.monotonic_ns()}")
            begun = _IDENTIFIER.search(answer.content) if answer is not None else None
            if begun is not None:
                identifier = begun[1].decode()
                self.identifiers.append(identifier)
                problem = "its message was not acknowledged"
                answer = await self._say(
                    "Sequence", identifier, f"urn:uuid:good-{time.monotonic_ns()}"
                )
                if answer is not None and b'Upper="1"' in answer.content:
                    problem = "it was told that there is no room"
                if (
                    answer is not None
                    and b'Upper="1"' in answer.content
                    and _ROOM.search(answer.content)
                ):
                    await self._say(
                        "TerminateSequence", identifier, f"urn:uuid:good-{time.monotonic_ns()}"
                    )
                    if pauses == self._pauses:
                        self._saw("wsrm", patience.spent)
                    return
            await asyncio.sleep(0.2)
        shown = self._no_answer() if answer is None else f"{answer.status} {answer.content[:300]!r}"
        self._found(
            "starved",
            f"a good client of WS-ReliableMessaging: {problem} in {patience.spent:.0f} s: {shown}",
            pauses,
        )

    async def _say(self, operation: str, identifier: str, message_id: str) -> Answer | None:
        given = {
            "op": operation,
            "number": 1,
            "version": MODERN,
            "acks": "anonymous",
            "id": message_id,
        }
        content = envelope_of(given, identifier, 0).encode()
        headers = {"Host": "h", "Content-Type": MIME[SoapVersion.V1_2]}
        raw = http_request("POST", f"/wsrm/{SHARED}", content, headers)
        return (await self._timed("wsrm", raw, WHO_WSRM, OPTIONAL_MAX))[0]

    # --- a client of remote read ------------------------------------------------------------------

    async def _rpc(self, port: str) -> None:
        """Send a bind to ``port`` and record the time until it is answered, or a finding."""
        pauses, patience = self._pauses, Patience(OPTIONAL_MAX, self._pid)
        problem = ""
        while not patience.is_over:
            try:
                connection = await Connection.open(self._ports[port], WHO_RPC)
                try:
                    await connection.send([bind_pdu(0, 10)])
                    kind = (await connection.read(16, OPTIONAL_MAX))[2]
                finally:
                    connection.abort()
            except (ClosedError, SilentError) as error:
                problem = str(error)
                await asyncio.sleep(0.1)
                continue
            if pauses == self._pauses and self._awake.is_set():
                self._saw(port, patience.spent)
                if kind not in (PduType.BIND_ACK, PduType.BIND_NAK):
                    self._found(
                        "answer", f"{port} answered a bind with a PDU of type {kind}", pauses
                    )
            return
        self._found(
            "starved",
            f"a good client of {port}: no answer to a bind in {patience.spent:.0f} s: {problem}",
            pauses,
        )

    # --- a reader of the queue that everybody sends to --------------------------------------------

    async def _read(self) -> None:
        """Mark all rows of :data:`SHARED` as received, as a query does that keeps up."""
        queue = SHARED.replace("/", "%2F")
        if not self._is_registered:
            begin = {"epoch": self._epoch, "from": 1, "holder": "witness"}
            self._is_registered = (
                await self._call("POST", f"/v1/queues/{queue}/consumers/default/register", begin)
                is not None
            )
        found = await self._call(
            "GET", f"/v1/queues/{queue}/range?epoch={self._epoch}&after=0", None
        )
        if found is not None:
            mark = {"epoch": self._epoch, "to": found["end"], "holder": "witness"}
            await self._call("POST", f"/v1/queues/{queue}/consumers/default/received", mark)

    async def _call(
        self, method: str, target: str, body: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        headers = {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {ADMIN_TOKEN}",
            "Content-Type": "application/json",
        }
        raw = http_request(
            method, target, b"" if body is None else json.dumps(body).encode(), headers
        )
        answer, _ = await self._timed("api reader", raw, WHO_API, HONEST_MAX * 10)
        if answer is None or answer.status not in (200, 204):
            return None
        found: dict[str, Any] = json.loads(answer.content or b"{}")
        return found

    def report(self) -> dict[str, Any]:
        """Return the measurements and findings since the last report, and forget them.

        ``acknowledged`` is the number since the start.
        """
        said = {
            "worst": self.worst,
            "acknowledged": self.acknowledged,
            "findings": self.findings,
            "identifiers": self.identifiers,
        }
        self.worst, self.findings, self.identifiers = {}, [], []
        return said


async def _main() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    begin = json.loads(await lines.readline())
    control = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROL, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert control.stdout is not None
    witness = Witness(
        begin["ports"],
        begin["epoch"],
        ("127.0.0.1", int(await control.stdout.readline())),
        begin["pid"],
    )
    running = asyncio.ensure_future(witness.run())
    try:
        while line := await lines.readline():
            command = json.loads(line)
            if command["do"] == "pause":
                witness.pause()
            elif command["do"] == "resume":
                witness.resume(command["pid"])
            if running.done():
                running.result()
            sys.stdout.write(json.dumps(witness.report()) + "\n")
            sys.stdout.flush()
    finally:
        running.cancel()
        control.kill()
        await control.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    asyncio.run(_main())
