"""The smallest receiver that keeps [MC-MQSRM]'s promises, in memory: the foreign senders are tested against it.

It shares no code with the package. ``crash_after`` makes it forget its connections after so many requests, as a killed
process would (what it acknowledged stays).
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

COALESCING = 0.15
"""Seconds of quiet before a stream receipt; the real 0.5 s would only slow these tests."""


@dataclass
class StubReceiver:
    rows: list[tuple[str, str, int, bytes]] = field(default_factory=list)
    """Queue, lineage, uniquifier, body: in order of arrival."""
    seen: set[tuple[str, int]] = field(default_factory=set)
    streams: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """(queue, GUID) → live stream id, last position."""
    urls: dict[str, str] = field(default_factory=dict)
    posts: list[bytes] = field(default_factory=list)
    crash_after: int | None = None
    status_next: list[int] = field(default_factory=list)
    silent_receipts: int = 0
    """So many receipts are lost on the way."""
    port: int = 0
    server: asyncio.Server | None = None
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> StubReceiver:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.server.close()
        for writer in self.writers:
            writer.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
                content = await reader.readexactly(length)
                if self.crash_after is not None:
                    self.crash_after -= 1
                    if self.crash_after < 0:
                        self.crash_after = None
                        for other in list(self.writers):
                            other.close()
                        return
                self.posts.append(head + content)
                status = self.status_next.pop(0) if self.status_next else 200
                if status == 200:
                    self._accept(content)
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (EOFError, OSError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    def _accept(self, content: bytes) -> None:
        text = content.decode("latin-1")
        queue = re.search(r"<to>http://[^/]+/msmq/([^<]*)</to>", text)[1]
        number, lineage = re.search(r"<id>uuid:(\d+)@([^<]*)</id>", text).groups()
        part = re.search(r"Content-Length: (\d+)\r\nContent-Id: body@[^\r]*\r\n\r\n", text)
        body = content[part.end() : part.end() + int(part[1])]
        stream = re.search(
            r"<[sS]tream .*<streamId>(uid:([^\\]*)\\(\d+))</streamId>", text, re.DOTALL
        )
        if stream is not None:
            current = int(re.search(r"<current>(\d+)<", text)[1])
            previous = re.search(r"<previous>(\d+)<", text)
            before = int(previous[1]) if previous else current - 1
            identifier, key = stream[1], (queue, stream[2])
            live, last = self.streams.get(key, ("", 0))
            url = re.search(r"<sendReceiptsTo>\s*(\S+?)\s*</sendReceiptsTo>", text)
            starts = (
                url is not None
                and current == 1
                and (not live or int(stream[3]) > int(live.split("\\")[1]))
            )
            if url is not None and starts:
                self.urls[identifier] = url[1]
            elif identifier != live or current <= last or before > last:
                if identifier == live:
                    self._arm(key, identifier)
                return
            self.streams[key] = (identifier, current)
            self._arm(key, identifier)
        elif (lineage, int(number)) in self.seen:
            return
        self.seen.add((lineage, int(number)))
        self.rows.append((queue, lineage, int(number), body))

    def _arm(self, key: tuple[str, str], identifier: str) -> None:
        if identifier in self.timers:
            self.timers[identifier].cancel()
        loop = asyncio.get_running_loop()
        self.timers[identifier] = loop.call_later(COALESCING, self._receipt, key, identifier)

    def _receipt(self, key: tuple[str, str], identifier: str) -> None:
        if self.silent_receipts:
            self.silent_receipts -= 1
            return
        live, last = self.streams[key]
        if live == identifier:
            task = asyncio.ensure_future(self._send(self.urls[identifier], identifier, last))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _send(self, url: str, identifier: str, last: int) -> None:
        host, port, path = re.fullmatch(r"http://([^:/]+):(\d+)(/.*)", url).groups()
        now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        envelope = (
            '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
            '<se:Header><path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">'
            f"<action>MSMQ:QM Ordering Ack</action><to>{url}</to><id>uuid:1@stub</id></path>"
            f'<properties se:mustUnderstand="1"><sentAt>{now}</sentAt></properties>'
            f"<streamReceipt><streamId>{identifier}</streamId><lastOrdinal>{last}</lastOrdinal></streamReceipt>"
            '<Msmq xmlns="msmq.namespace.xml"><Class>255</Class></Msmq></se:Header><se:Bod'
            "y></se:Body></se:Envelope>"
        ).encode()
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: "
            f"text/xml\r\nContent-Length: {len(envelope)}\r\n\r\n"
        )
        writer.write(head.encode() + envelope)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
