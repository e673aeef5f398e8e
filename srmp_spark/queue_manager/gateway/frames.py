"""Frame the messages between main process and gateway: MessagePack after its length.

Both ends are code of srmp-spark, so a frame that cannot be decoded is a bug and not an attack. The
decoder nevertheless checks every field against its type: a gateway that went wrong must not pass
wrong values on.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec

from srmp_spark.errors import LimitExceededError, RemoteProtocolError

FRAME_MAX = 32 * 1024 * 1024
"""Most bytes of one frame: a body of 4 MB as a remote reader gets it, in UTF-16 and twice, with
room to spare. Encoding a longer frame raises :class:`LimitExceededError`. Reading a longer frame
ends the channel.
"""
_LENGTH = Struct("<I")

_In = TypeVar("_In")

_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: msgspec.Struct) -> bytes:
    """Return ``message`` as MessagePack with its length before it.

    Raises :class:`LimitExceededError` if the message is longer than FRAME_MAX.
    """
    content = _encoder.encode(message)
    if len(content) > FRAME_MAX:
        raise LimitExceededError("FRAME_MAX", FRAME_MAX, len(content))
    return _LENGTH.pack(len(content)) + content


class FrameReader(Generic[_In]):
    """Cuts a byte stream into messages of one union type."""

    def __init__(self, types: Any) -> None:  # noqa: ANN401  # a union of Struct types is no type to mypy
        """Create a reader without bytes.

        ``types`` is the union of all messages that this end may receive.
        """
        self._decoder: msgspec.msgpack.Decoder[_In] = msgspec.msgpack.Decoder(types)
        self._data = bytearray()

    def __len__(self) -> int:
        """Return the number of bytes that were fed and belong to no yielded message yet."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add received bytes, which may end anywhere in a frame."""
        self._data += data

    def messages(self) -> Generator[_In, None, None]:
        """Yield each message that is whole, and discard its bytes.

        The bytes are also discarded when the caller stops half-way. Bytes of an incomplete message
        are kept. Raises :class:`RemoteProtocolError` for a frame that is longer than FRAME_MAX or
        is no message.
        """
        at = 0
        try:
            while len(self._data) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._data, at)
                if length > FRAME_MAX:
                    raise RemoteProtocolError(
                        f"a frame of {length} bytes, FRAME_MAX is {FRAME_MAX}"
                    )
                first = at + _LENGTH.size
                if len(self._data) - first < length:
                    return
                at = first + length
                yield self._decode(first, at)
        finally:
            del self._data[:at]

    def _decode(self, first: int, end: int) -> _In:
        with memoryview(self._data) as view, view[first:end] as frame:
            try:
                return self._decoder.decode(frame)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise RemoteProtocolError(f"a frame that is no message: {error}") from None
