"""Requests and answers of the API: ASGI on one side, plain values and :class:`ApiError` on the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.connection import Connection
from srmp_spark.queue_manager.tokens import Token, Verb

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REQUEST_BODY_MAX = 64 * 1_048_576
"""Bytes of a JSON body with messages: a list of messages for ``send``, base64."""
CALL_BODY_MAX = 65_536
"""Bytes of the JSON body of any other call: a holder, options, a subscription. More is answered 413."""
MARKS_BODY_MAX = 2 * 1_048_576 + CALL_BODY_MAX
"""Bytes of a ``received`` call: SEQUENCES_MAX numbers of 19 digits, and all else that a call has."""
SERIALS_BODY_MAX = 4 * CALL_BODY_MAX
"""Bytes of an ``outgoing/states`` call: SERIALS_MAX numbers of 19 digits, and a destination."""
NESTED_MAX = 1_000
"""Lists and objects in the body of a call other than messages. A list of numbers is parsed in a few milliseconds, as many
objects take twenty times as long. More is answered 413."""
JSON_ITEMS_MAX = 250_000
"""Values in a JSON body: each costs up to a hundred bytes of memory, whatever it costs the caller. More is answered 413."""
BODIES_MAX = 192 * 1_048_576
"""Bytes of the JSON bodies of all calls together. A call that would need more is answered 503: try again."""
QUERY_FIELDS_MAX = 50
"""Fields of a query string; no call has more than six."""
QUERY_MAX = 8_192
"""Bytes of a query string: decoded, each ``%xx`` of it is an object for a moment."""
SHOWN_MAX = 100
"""Characters of a wrong value that an error repeats."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Where JSON may hide half a character; most bodies have none, and are not looked through."""


def usage(message: str, hint: str = "") -> ApiError:
    """A 400: the caller asked for something that makes no sense."""
    return ApiError(400, "usage", message, hint, "INTERFACE.md section 3")


@dataclass(slots=True)
class Bodies:
    """What the bodies of all calls in progress take: one budget for the port."""

    bytes: int = 0

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises a 503 beyond BODIES_MAX, and counts nothing then."""
        if self.bytes + size > BODIES_MAX:
            message = f"the bodies of all calls together are longer than {BODIES_MAX} bytes"
            raise ApiError(503, "too-many-bytes", message, "try again, with fewer messages at once")
        self.bytes += size


@dataclass(slots=True)
class Request:
    """One call, its path already matched."""

    method: str
    path: str
    parameters: dict[str, str]
    """What the route's ``{…}`` matched, percent-decoded."""
    headers: dict[str, str]
    query: dict[str, list[str]]
    receive: Receive = field(repr=False)
    connection: Connection | None = field(default=None, repr=False)
    """The caller's connection, if others may write into it (see :mod:`.connection`)."""
    token: Token | None = None
    """Whose call it is; ``None`` where no token is asked for."""
    bodies: Bodies = field(default_factory=Bodies, repr=False)
    """The budget that a body counts in."""
    taken: int = 0
    """Bytes that this call has taken of :attr:`bodies`."""

    def sees(self, queue: str) -> bool:
        """Whether the caller's token is for ``queue``, whatever it may do with it."""
        return self.token is None or self.token.is_for(queue)

    @property
    def caller(self) -> str | None:
        """Return the name of the caller's token, by which shares are counted; ``None`` where no token is asked for."""
        return None if self.token is None else self.token.name

    @property
    def sees_all(self) -> bool:
        """Whether it is for every queue, and so for what goes out."""
        return self.token is None or self.token.is_for_all

    def text(self, name: str, default: str | None = None) -> str | None:
        """A query field. Raises a 400 if it is given twice."""
        values = self.query.get(name)
        if not values:
            return default
        if len(values) > 1:
            raise usage(f"{name} is given twice")
        return values[0]

    def integer(self, name: str, *, default: int | None = None, low: int = 0) -> int | None:
        """A query field that is a whole number from ``low`` on."""
        text = self.text(name)
        if text is None:
            return default
        return _integer(name, text, low)

    def required_integer(self, name: str, *, low: int = 0) -> int:
        """The same, but it must be there."""
        value = self.integer(name, low=low)
        if value is None:
            raise usage(f"{name} is missing")
        return value

    def seconds(self, name: str, *, high: float) -> float:
        """A query field in seconds, 0 if absent, cut to ``high``."""
        text = self.text(name, "0")
        try:
            value = float(text or "0")
        except ValueError:
            raise usage(f"{name} is a number of seconds, not {text!r}") from None
        if not value >= 0:  # not "< 0": NaN
            raise usage(f"{name} is a number of seconds, not {text!r}")
        return min(value, high)

    def allows(self, verb: Verb, queue: str) -> bool:
        """Whether the caller may do ``verb`` with ``queue``."""
        return self.token is None or self.token.allows(verb, queue)

    def done(self) -> None:
        """Give back what the body has taken of the budget."""
        self.bodies.bytes -= self.taken
        self.taken = 0

    async def body(self, limit: int = CALL_BODY_MAX) -> bytes:
        """Read the whole body; errors as for :meth:`pieces`."""
        return b"".join(await self.pieces(limit))

    async def pieces(self, limit: int) -> list[bytes]:
        """Read the whole body, as it arrives. Raises a 413 beyond ``limit``, before anything is read if the caller says so."""
        said = self.headers.get("content-length", "")
        if said.isascii() and said.isdigit() and int(said[:19]) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise ConnectionResetError
            piece = event.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            self.bodies.take(len(piece))
            self.taken += len(piece)
            parts.append(piece)
            if not event.get("more_body", False):
                return parts

    async def json(self, limit: int = CALL_BODY_MAX) -> Any:  # noqa: ANN401  # whatever the caller sent
        """Read the body as JSON, ``limit`` bytes at most."""
        return parse_json(await self.body(limit))

    async def json_object(self, limit: int = CALL_BODY_MAX) -> dict[str, Any]:
        """Read the body as a JSON object, ``limit`` bytes at most; an empty body is an empty object."""
        text = await self.body(limit)
        if not text:
            return {}
        if text.count(b"[") + text.count(b"{") > NESTED_MAX:
            message = f"the body holds more than {NESTED_MAX} lists and objects (NESTED_MAX)"
            raise ApiError(
                413,
                "too-large",
                message,
                "this call takes one object, with a list of plain values at most",
            )
        value = parse_json(text)
        if len(text) > CALL_BODY_MAX:
            await asyncio.sleep(0)  # what the call does with it is another turn of the loop
        if not isinstance(value, dict):
            raise usage("the body is not a JSON object")
        return value


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, "too-large", f"the body is longer than {limit} bytes", "send fewer messages at once"
    )


def parse_json(body: bytes) -> Any:  # noqa: ANN401  # whatever the caller sent
    """Parse a body. What this returns can be written again: UTF-8 without half characters, finite numbers.

    Raises a 400, or a 413 for more than JSON_ITEMS_MAX values. Long lists are read by :mod:`.json_items`, to the same rules.
    """
    if values_in(body) > JSON_ITEMS_MAX:
        raise too_many_values()
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=no_number)
    except UnicodeError:
        raise not_json_in_utf8() from None
    except (ValueError, RecursionError):
        raise not_json() from None
    check_no_half_characters(text, value, 0, len(text))
    return value


def values_in(text: bytes) -> int:
    """Count the values that JSON text may hold at most, but for one."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def check_no_half_characters(text: str, value: object, begin: int, end: int) -> None:
    """Raise a 400 if ``value``, which was parsed from that part of ``text``, has half of a surrogate pair in it."""
    first = text.find(
        "\\u", begin, end
    )  # ten times as fast as the pattern, in a text of millions of characters
    if first >= 0 and _SURROGATE.search(text, first, end):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError:
            raise not_json_in_utf8() from None


def too_many_values() -> ApiError:
    """Return the 413 for a body of more than JSON_ITEMS_MAX values."""
    message = f"the body holds more than {JSON_ITEMS_MAX} values (JSON_ITEMS_MAX)"
    return ApiError(413, "too-large", message, "send fewer messages at once")


def not_json() -> ApiError:
    """Return the 400 for a body that is no JSON."""
    return usage("the body is not JSON")


def not_json_in_utf8() -> ApiError:
    """Return the 400 for a body that is no text, or holds half a character."""
    return usage("the body is not JSON in UTF-8, or a text in it is half of a surrogate pair")


def no_number(text: str) -> Any:  # noqa: ANN401  # the signature of json; it does not return
    """Refuse NaN and infinity, which Python takes for JSON."""
    raise ValueError(f"{text} is no JSON")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _integer(name: str, value: object, low: int, high: int = 2**63 - 1) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        top = "on" if high == 2**63 - 1 else f"to {high}"
        raise usage(f"{name} is a whole number from {low} {top}, not {_shown(value)}")
    return value


def field_integer(
    body: dict[str, Any],
    name: str,
    *,
    default: int | None = None,
    low: int = 0,
    high: int = 2**63 - 1,
) -> int | None:
    """A whole number in a JSON body, from ``low`` to ``high``."""
    value = body.get(name)
    return default if value is None else _integer(name, value, low, high)


def field_text(body: dict[str, Any], name: str) -> str | None:
    """A text in a JSON body."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise usage(f"{name} is a text, not {_shown(value)}")
    return value


@dataclass(slots=True)
class Response:
    """An answer: a body, or a stream of pieces."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncGenerator[bytes, None] | None = None
    direct: Callable[[], Awaitable[None]] | None = None
    """Writes the body into the connection, past the ASGI server, in chunks of HTTP without the last one."""

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Response:  # noqa: ANN401  # anything that JSON can write
        """A JSON answer, in ASCII: whatever text a store or an error holds, it can be written."""
        return cls(status, json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")

    @classmethod
    def error(cls, error: ApiError) -> Response:
        """``{"error":{code,message,hint,section}}``."""
        body = {
            "error": {
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "section": error.section,
            }
        }
        return cls.json(body, error.status)

    async def send(self, send: Send, *, has_body: bool = True) -> None:
        """Write it out; only its head with ``has_body=False``, which is the whole answer to HEAD."""
        headers = [
            (b"content-type", self.content_type.encode("ascii")),
            (b"cache-control", b"no-store"),
        ]
        headers += [
            (name.encode("ascii"), value.encode("latin-1", "replace"))
            for name, value in self.headers
        ]
        if (
            self.stream is None and self.direct is None and (has_body or self.body)
        ):  # of rows nobody knows the length before
            headers.append((b"content-length", str(len(self.body)).encode("ascii")))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if not has_body:
            await send({"type": "http.response.body", "body": b""})
        elif self.direct is not None:
            await self.direct()
            await send({"type": "http.response.body", "body": b""})
        elif self.stream is not None:
            async for piece in self.stream:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": self.body})


def parse_query(raw: bytes) -> dict[str, list[str]]:
    """A query string. Raises a 400."""
    if len(raw) > QUERY_MAX:
        raise usage(f"the query string has {len(raw)} bytes, more than {QUERY_MAX}")
    try:
        return parse_qs(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:  # UnicodeDecodeError is one
        raise usage("the query string is malformed") from None
