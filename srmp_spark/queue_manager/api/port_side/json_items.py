"""Read a long JSON body, an object or a list of objects, in slices of the loop.

Theory of operation. Text is decoded into a window, one chunk at a time. An object is parsed where
it begins. If parsing fails at the end of the window, the window doubles and the object is parsed
again, until the body or :data:`ITEM_TEXT_MAX` ends. So every step is short, and all steps together
parse each byte at most twice.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.http import (
    JSON_ITEMS_MAX,
    check_no_half_characters,
    no_number,
    not_json,
    not_json_in_utf8,
    parse_json,
    too_many_values,
    usage,
    values_in,
)
from srmp_spark.queue_manager.slices import Work

CHUNK_BYTES = 65_536
"""Bytes that are decoded at once.

A body up to this size is parsed as a whole, which takes a few milliseconds.
"""
ITEM_TEXT_MAX = 8 * 1_048_576
"""Most characters of one object. More raise a 413.

A message of the largest size has 5.6 million.
"""
ITEM_VALUES_MAX = 16_384
"""Most values in one object, counting characters of a text that look like values.

More raise a 413. The limit is twice the number of commas in a longest label.
"""
CUT_MAX = 16
"""Last characters of the window in which a syntax error may be caused by the window's end.

The end of the window may cut a word, a number or an escape. A syntax error before these characters
is an error of the body.
"""

_BLANKS = re.compile(r"[ \t\n\r]*")


async def json_items(pieces: list[bytes], work: Work) -> AsyncIterator[object]:
    """Yield the values of a body: the entries of a list, or the only value.

    In a body of more than CHUNK_BYTES every value is an object, and anything else raises a 400. In
    a shorter body a value may be any JSON, which the caller must check. ``work`` gives other tasks
    of the loop their turns. A long body empties ``pieces``. Raises a 400 for invalid JSON, also
    after some objects were yielded, and a 413 beyond a limit of this module or JSON_ITEMS_MAX.
    """
    async for item in _items(pieces, work):
        yield item.value


async def json_item_texts(pieces: list[bytes], work: Work) -> AsyncIterator[bytes]:
    """Yield the JSON text of each value that :func:`json_items` yields, in UTF-8.

    Another process parses the texts. In a long body they are the texts of the body, because writing
    a parsed message of the largest size again would take 20 milliseconds. Raises the errors of
    :func:`json_items`.
    """
    async for item in _items(pieces, work):
        yield item.text.encode()
        await work.turn()


class _Item(NamedTuple):
    """One value of the body, and its position in the window (offsets in characters)."""

    value: object
    window: str
    begin: int
    end: int

    @property
    def text(self) -> str:
        return self.window[self.begin : self.end]


async def _items(pieces: list[bytes], work: Work) -> AsyncIterator[_Item]:
    if sum(map(len, pieces)) <= CHUNK_BYTES:
        value = parse_json(b"".join(pieces))
        for item in value if isinstance(value, list) else [value]:
            whole = json.dumps(item)
            yield _Item(item, whole, 0, len(whole))
            await work.turn()
        return
    text = _Text(pieces, work)
    if await text.next() != "[":
        yield await text.item()
    else:
        text.at += 1
        while await text.next() != "]":
            yield await text.item()
            following = await text.next()
            if following != "]":
                if following != ",":
                    raise not_json()
                text.at += 1
                if await text.next() == "]":
                    raise not_json()
        text.at += 1
    if await text.next():
        raise not_json()


class _Text:
    """The window on the text of the body, and the position of reading in it."""

    def __init__(self, pieces: list[bytes], work: Work) -> None:
        pieces.reverse()
        self._pieces = pieces
        self._work = work
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parse = json.JSONDecoder(parse_constant=no_number).raw_decode
        self._window = ""
        self.at = 0
        self._chunks: list[tuple[int, int]] = []
        """For each chunk in the window, its number of characters and of possible values."""
        self._values = 0
        """Upper bound of the number of values in all text that was decoded so far."""

    async def next(self) -> str:
        """Skip blanks, and return the next character without consuming the character.

        Return an empty text at the end of the body. Raises the errors of :meth:`_grow`.
        """
        while True:
            found = _BLANKS.match(self._window, self.at)
            assert found is not None
            self.at = found.end()
            if self.at < len(self._window):
                return self._window[self.at]
            if not await self._grow():
                return ""

    async def item(self) -> _Item:
        """Read the next object of the body. Raises a 400 if something else follows.

        Raises the errors of :meth:`_grow` too.
        """
        first = await self.next()
        if first != "{":
            raise usage("a message is a JSON object") if first else not_json()
        while True:
            try:
                value, end = self._parse(self._window, self.at)
                break
            except json.JSONDecodeError as error:
                is_cut = (
                    error.msg.startswith("Unterminated") or error.pos >= len(self._window) - CUT_MAX
                )
                if not is_cut or not await self._grow():
                    raise not_json() from None
            except (ValueError, RecursionError):
                raise not_json() from None
        await self._work.turn()
        check_no_half_characters(self._window, value, self.at, end)
        item = _Item(value, self._window, self.at, end)
        self.at = end
        await self._work.turn()
        return item

    async def _grow(self) -> bool:
        """Drop the text that was read, and double the rest of the window.

        Return whether text was added; ``False`` means the end of the body. Raises a 413 if one
        object is too long or the body has too many values, and a 400 if the body is not UTF-8.
        """
        await self._work.turn()
        read = whole = 0
        for length, _ in self._chunks:
            if read + length > self.at:
                break
            read += length
            whole += 1
        del self._chunks[:whole]
        self.at -= read
        left = len(self._window) - read
        if left > ITEM_TEXT_MAX or sum(each for _, each in self._chunks[1:]) > ITEM_VALUES_MAX:
            message = (
                f"one message is longer than {ITEM_TEXT_MAX} characters, or has "
                f"more than {ITEM_VALUES_MAX} values"
            )
            raise ApiError(413, "too-large", message, "send smaller messages")
        added: list[str] = []
        values = size = 0
        while self._pieces and size < max(left, 1) and values <= ITEM_VALUES_MAX:
            chunk, count = self._decoded()
            added.append(chunk)
            self._chunks.append((len(chunk), count))
            size, values = size + len(chunk), values + count
            await self._work.turn()
        self._window = "".join((self._window[read:], *added))
        await self._work.turn()
        return size > 0

    def _decoded(self) -> tuple[str, int]:
        """Decode the next chunk, and return its text with an upper bound of its number of values.

        Raises a 413 beyond JSON_ITEMS_MAX values in the body, and a 400 if the chunk is not UTF-8.
        """
        piece = self._pieces.pop()
        if len(piece) > CHUNK_BYTES:
            self._pieces.append(piece[CHUNK_BYTES:])
            piece = piece[:CHUNK_BYTES]
        values = values_in(piece)
        self._values += values
        if self._values > JSON_ITEMS_MAX:
            raise too_many_values()
        try:
            return self._decoder.decode(piece, final=not self._pieces), values
        except UnicodeError:
            raise not_json_in_utf8() from None
