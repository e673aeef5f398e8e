"""Encode what crosses between the main process and a child: frozen dataclasses, as JSON.

Commands, answers, events and settings are frozen dataclasses of plain values (texts, numbers,
bytes, tuples, lists and further dataclasses). Both processes are started from the same files, so
the form of the JSON belongs to this module alone and may change with every version. Texts may hold
any character of Python, also half of a surrogate pair, because the path of a data directory may
contain one.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Generic, TypeVar

import msgspec

_KIND = "@"
"""The key that names the kind of a command or an event. No field of a dataclass has such a name."""

_Crossing = TypeVar("_Crossing")
_Read = TypeVar("_Read")


class ItemTexts(list[bytes]):
    """A list of items that are JSON texts already, and that this process does not parse.

    It may be the last field of a command. The receiver gets a list of the parsed items.
    """


def encode(value: object) -> bytes:
    """Return ``value`` as JSON: an answer, or the settings of a child."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def decode(text: bytes | str, kind: type[_Read]) -> _Read:
    """Return the value of the type ``kind`` that :func:`encode` returned as ``text``.

    Raises :class:`ValueError` if ``text`` is no JSON, or :class:`msgspec.ValidationError` if it
    holds another value.
    """
    return msgspec.convert(json.loads(text), kind)


class Encoding(Generic[_Crossing]):
    """Encodes and decodes a closed set of commands or events, each kind by its name."""

    def __init__(self, kinds: Mapping[str, type[_Crossing]]) -> None:
        """Create the encoding of ``kinds``, by the names that the log shows."""
        self._kinds = dict(kinds)
        self._names = {kind: name for name, kind in kinds.items()}

    def name_of(self, message: _Crossing) -> str:
        """Return the name of the kind of ``message``."""
        return self._names[type(message)]

    def encode(self, message: _Crossing) -> bytes:
        """Return ``message`` as JSON that names its kind."""
        return b"".join(self.pieces(message))

    def pieces(self, message: _Crossing) -> Iterator[bytes]:
        """Yield ``message`` as JSON in pieces, without a copy of any :class:`ItemTexts`."""
        values = {_KIND: self.name_of(message)} | _fields_of(message)
        lists = {name: each for name, each in values.items() if isinstance(each, ItemTexts)}
        text = encode({name: each for name, each in values.items() if name not in lists})
        if not lists:
            yield text
            return
        ((name, items),) = lists.items()
        yield b"%b,%b:[" % (text[:-1], encode(name))
        for number, item in enumerate(items):
            if number:
                yield b","
            yield item
        yield b"]}"

    def decode(self, text: bytes) -> _Crossing:
        """Return the message that :meth:`encode` returned as ``text``.

        Raises :class:`KeyError` for a kind that is not in the set, and the errors of
        :func:`decode`.
        """
        values = json.loads(text)
        return msgspec.convert(values, self._kinds[values[_KIND]])


def _fields_of(message: object) -> dict[str, object]:
    return {each.name: getattr(message, each.name) for each in fields(message)}  # type: ignore[arg-type]  # a dataclass


def _plain(value: object) -> object:
    """Return ``value``, which json cannot write, in a form that :func:`decode` turns back."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, frozenset):
        return list(value)
    return _fields_of(value)
