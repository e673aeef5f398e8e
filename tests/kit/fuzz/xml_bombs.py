"""XML that is small on the wire and large in a parser (test T17), and its cost.

    python -m tests.kit.fuzz.xml_bombs    # one JSON line for each bomb and way

A line has the result, CPU time in milliseconds, bytes of memory, and audit events. Most bombs have
two sizes. With the larger size, the limits refuse the bomb before a parser sees it. With the
smaller size, the largest that the limits let through, the parser must survive the bomb.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.queue_manager.srmp_port.chunked import ChunkedBody
from srmp_spark.srmp import limits
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.testing.foreign.messages import envelope as envelope_of
from tests.kit.fuzz import samples

MILLISECONDS_MAX = 50
"""Most CPU time until a bomb is refused, in milliseconds."""
BYTES_MAX = 10 * 1_048_576
"""Most bytes of memory that the parser may take, in addition to those that hold the bomb."""
PIECE = 4_096
"""Bytes of a piece. Expat before 2.6.0 parses an unfinished token again with each piece."""
WATCHED = (
    "open",
    "socket",
    "subprocess",
    "os.system",
    "os.exec",
    "urllib",
    "http",
    "ctypes.dlopen",
)
"""Beginnings of the names of audit events that no message may cause."""


class Measured(TypedDict):
    """The result of one bomb sent in one way.

    ``way`` is ``text/xml``, ``multipart`` or ``chunked``. ``milliseconds`` are CPU time, ``bytes``
    the memory at the peak in addition to that before the parser. ``events`` are audit events that
    no message may cause.
    """

    name: str
    way: str
    refused: bool
    status: int
    milliseconds: float
    bytes: int
    events: list[str]


class Bomb(NamedTuple):
    """One XML document of the list."""

    name: str
    xml: bytes
    accepted: bool = False
    """Whether the document may be accepted, because it is harmless at the size that fits."""


def _good() -> bytes:
    return envelope_of(next(samples.messages())).encode()


def _inside(piece: bytes) -> bytes:
    """Return a valid envelope with ``piece`` as a header entry."""
    return _good().replace(b"</se:Header>", piece + b"</se:Header>")


def _with_label(text: bytes, prolog: bytes = b"") -> bytes:
    return prolog + _good().replace(b"MSMQ:a label", b"MSMQ:" + text)


def _billion_laughs() -> bytes:
    entities = b"".join(b'<!ENTITY a%d "%b">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    return _with_label(b"&a9;", b'<!DOCTYPE x [<!ENTITY a0 "ha">' + entities + b"]>")


def _attributes(count: int) -> bytes:
    return b"<x " + b" ".join(b"a%d=''" % n for n in range(count)) + b"/>"


def _namespaces(count: int) -> bytes:
    return b"<x " + b" ".join(b"xmlns:n%d='u%d'" % (n, n) for n in range(count)) + b"/>"


_SIZED: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "quadratic blow-up": (
        lambda n: _with_label(b"&a;" * n, b'<!DOCTYPE x [<!ENTITY a "' + b"x" * n + b'">]>'),
        50_000,
        10_000,
    ),
    "depth": (lambda n: _inside(b"<x>" * n + b"</x>" * n), 1_000_000, 1_900),
    "depth without end": (lambda n: b"<x>" * n, 1_000_000, 3_900),
    "attributes": (lambda n: _inside(_attributes(n)), 200_000, 5_000),
    "namespaces": (lambda n: _inside(_namespaces(n)), 100_000, 2_800),
    "namespaces, each in the one before": (
        lambda n: _inside(b"".join(b"<x xmlns:n%d='u'>" % i for i in range(n))),
        100_000,
        1_900,
    ),
    "a token as a label": (lambda n: _with_label(b"x" * n), 32 * 1_048_576, 60_000),
    "a token as a name": (lambda n: _inside(b"<" + b"x" * n + b"/>"), 32 * 1_048_576, 60_000),
    "a token as an attribute": (
        lambda n: _inside(b"<x a='" + b"x" * n + b"'/>"),
        32 * 1_048_576,
        60_000,
    ),
    "a token that does not end": (lambda n: b"<x a='" + b"x" * n, 32 * 1_048_576, 65_000),
    "a comment": (lambda n: _inside(b"<!--" + b"x" * n + b"-->"), 32 * 1_048_576, 60_000),
    "a comment that does not end": (lambda n: _inside(b"<!--" + b"x" * n), 32 * 1_048_576, 60_000),
    "comments": (lambda n: _inside(b"<!---->" * n), 1_000_000, 9_000),
    "sections": (lambda n: _inside(b"<x>" + b"<![CDATA[x]]>" * n + b"</x>"), 1_000_000, 4_900),
    "references": (lambda n: _with_label(b"&#120;" * n), 2_000_000, 10_000),
    "elements": (lambda n: _inside(b"<a/>" * n), 2_000_000, 15_000),
    "colliding names": (
        lambda n: _inside(b"".join(b"<a%d b%d=''/>" % (i, i) for i in range(n))),
        200_000,
        3_000,
    ),
    "a declaration of blanks": (
        lambda n: b"<?xml version='1.0'" + b" " * n + b"?>" + _good(),
        16 * 1_048_576,
        63_000,
    ),
}
"""Name of a bomb → (builder, larger number, number that fits).

The builder makes the bomb from a number. The last number is the largest for which the bomb fits
into ENVELOPE_MAX.
"""
MAY_PASS = frozenset(
    (
        "a token as a label",
        "a token as a name",
        "a comment",
        "comments",
        "sections",
        "references",
        "a declaration of blanks",
        "namespaces",
    )
)
"""Bombs that may be accepted at the size that fits.

They are ordinary text or an unknown header entry then, and cost no more than any other envelope.
"""


def bombs() -> Iterator[Bomb]:
    """Yield the bombs of acceptance test T17."""
    yield Bomb("billion laughs", _billion_laughs())
    declared = b'<!DOCTYPE x [<!ENTITY e SYSTEM "%b">]>'
    yield Bomb("an external entity, file", _with_label(b"&e;", declared % b"file:///etc/hostname"))
    yield Bomb("an external entity, network", _with_label(b"&e;", declared % b"http://192.0.2.1/x"))
    yield Bomb(
        "a parameter entity",
        _with_label(b"x", b'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://192.0.2.1/x"> %p;]>'),
    )
    yield Bomb("an external subset", b'<!DOCTYPE x SYSTEM "http://192.0.2.1/x.dtd">' + _good())
    yield Bomb("a public subset", b'<!DOCTYPE x PUBLIC "-//X//Y" "file:///etc/hostname">' + _good())
    yield Bomb("an empty DTD", b"<!DOCTYPE x>" + _good())
    yield Bomb(
        "an empty DTD behind a declaration and a comment",
        b"<?xml version='1.0'?>\n<!-- x -->\n<!DOCTYPE x>" + _good(),
    )
    yield Bomb(
        "a schema location",
        _good().replace(b"<se:Header>", b"<?xml-model href='file:///etc/hostname'?><se:Header>"),
    )
    yield Bomb("a style sheet", b"<?xml-stylesheet href='http://192.0.2.1/x.xsl'?>" + _good())
    for code in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7"):
        yield Bomb(f"in {code}", _billion_laughs().decode().encode(code))
        yield Bomb(
            f"in {code}, declared",
            f'<?xml version="1.0" encoding="{code}"?>{_billion_laughs().decode()}'.encode(code),
        )
    yield Bomb(
        "UTF-7 declared, ASCII sent",
        b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE x+AD4-' + _good(),
    )
    yield Bomb(
        "UTF-16 declared, ASCII sent",
        b'<?xml version="1.0" encoding="UTF-16"?>' + _billion_laughs(),
    )
    yield Bomb("an unknown encoding", b'<?xml version="1.0" encoding="x-none"?>' + _good())
    yield Bomb("a mark of UTF-16 before ASCII", b"\xff\xfe" + _billion_laughs())
    for name, (make, large, fitting) in _SIZED.items():
        yield Bomb(f"{name}, {large:,}", make(large))
        yield Bomb(f"{name}, {fitting:,}", make(fitting), name in MAY_PASS)


def as_multipart(xml: bytes) -> bytes:
    """Return the content of a message with the envelope ``xml`` and correct lengths.

    The boundary is ``b``.
    """
    body = (
        b"\r\nContent-Type: application/octet-stream\r\nContent-Length: "
        b"1\r\nContent-Id: body@x\r\n\r\nx"
    )
    return (
        b"--b\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: "
        b"%d\r\n\r\n%b--b%b--b--\r\n" % (len(xml), xml, body)
    )


# --- the child ------------------------------------------------------------------------------------


def _highest() -> int:
    """Return the most bytes that the process held since :func:`_reset`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def _reset() -> None:
    """Reset the high-water mark of the process's memory (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(
    content_type: bytes, content: bytes, *, chunked: bool = False, name: str = "", way: str = ""
) -> Measured:
    """Decode a message in this process and return its cost.

    With ``chunked`` the content is first read in pieces of 4 KiB of ``Transfer-Encoding: chunked``.
    ``name`` and ``way`` are copied to the result. Call this function once a process, because an
    audit hook cannot be removed.
    """
    wire = (
        b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in _pieces(content)) + b"0\r\n\r\n"
        if chunked
        else b""
    )
    events: list[str] = []
    watching = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event.startswith(WATCHED):
            events.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(hook)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = 200
    begin = time.thread_time()
    watching = True
    try:
        if chunked:
            body = ChunkedBody()
            for piece in _pieces(wire):
                body.feed(piece)
            content = bytes(body.content)
            del wire, body
        watching = False
        _reset()
        before = _highest()
        watching = True
        decode(content_type, content)
    except RemoteProtocolError as error:
        status = error.status_hint
    finally:
        watching = False
    milliseconds = (time.thread_time() - begin) * 1000
    grown = _highest() - before
    return Measured(
        name=name,
        way=way,
        refused=status != 200,
        status=status,
        milliseconds=milliseconds,
        bytes=grown,
        events=events,
    )


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


def _apart(work: Callable[[], Measured]) -> Measured:
    """Run ``work`` in a child process and return its result.

    So no bomb changes the measurement of another one.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found: Measured = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


MULTIPART = b'multipart/related; boundary="b"; type=text/xml'


def measure_all() -> Iterator[Measured]:
    """Yield the cost of every bomb, each as a bare envelope and as a part of a message.

    If the message is small enough for the port, the bomb is also measured as chunks of 4 KiB.
    """
    # Objects that are created once must not count as the cost of the first bomb.
    decode(b"text/xml", _good())
    for bomb in bombs():
        content = as_multipart(bomb.xml)
        yield _apart(partial(measure, b"text/xml", bomb.xml, name=bomb.name, way="text/xml"))
        yield _apart(partial(measure, MULTIPART, content, name=bomb.name, way="multipart"))
        if len(content) <= limits.CONTENT_MAX:
            yield _apart(
                partial(measure, MULTIPART, content, chunked=True, name=bomb.name, way="chunked")
            )


if __name__ == "__main__":
    for measured in measure_all():
        sys.stdout.write(json.dumps(measured) + "\n")
