"""Reads values from an HTTP request head: the queue in the target, Content-Type and SOAPAction.

See [MC-MQSRM] 2.1.1 and chapter 4. The endpoint has parsed the head before it accepts a message.
These functions serve the endpoint and later readers of a stored POST. An accepted head is
well-formed, so each look-up is one search and no second parser is needed.

A stored POST must mean the same to every reader. The endpoint therefore also uses
:func:`content_type_of`, and only :func:`unfold` undoes folds.
"""

from __future__ import annotations

import re

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.names import queue_of_path, split_url
from srmp_spark.srmp.limits import TARGET_MAX

_SECTION = "[MC-MQSRM] 3.1.5.1.3"
# This matches a field value with its folds, because chapter 4 prints Content-Type on two lines.
_VALUE = rb"[ \t]*([^\r\n]*(?:\r\n[ \t]+[^\r\n]*)*)"
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:" + _VALUE, re.IGNORECASE)
_SOAP_ACTION = re.compile(rb"\r\nsoapaction:" + _VALUE, re.IGNORECASE)
_FOLD = re.compile(rb"\r\n[ \t]+")
_DOT_SEGMENT = re.compile(r"[/\\]\.{1,2}(?:;[^/\\]*)?(?:[/\\]|$)")


def check_target(target: bytes) -> str:
    """Return the canonical queue name in a request target, such as ``private$/orders``.

    A target is ``/msmq/private$/orders?SenderStream=x``, perhaps with ``http://host`` before it.
    The name is only ever a key of a map of configured queues. Dot segments, encoded separators (the
    rule is in :mod:`srmp_spark.names`), path parameters and NTFS streams are refused nevertheless,
    because nobody who means a queue writes them.

    Raises :class:`RemoteProtocolError` with status 400, or with status 414 if the target is longer
    than ``TARGET_MAX``.
    """
    if len(target) > TARGET_MAX:
        raise LimitExceededError(
            "TARGET_MAX", TARGET_MAX, len(target), status_hint=414, section=_SECTION
        )
    try:
        return _queue_of(target.decode())
    except ValueError as error:
        raise RemoteProtocolError(
            f"the request target names no queue: {ascii(str(error))[1:-1][:200]}", section=_SECTION
        ) from None


def _queue_of(target: str) -> str:
    path = target.partition("?")[0] if target.startswith("/") else split_url(target).path
    if _DOT_SEGMENT.search(path) or "::$" in path or "#" in path:
        raise ValueError("a dot segment, a fragment or an NTFS stream in a queue path")
    return queue_of_path(path)


def unfold(value: bytes) -> bytes:
    """Return a field value with each fold replaced by one blank (RFC 9112 5.2)."""
    return _FOLD.sub(b" ", value)


def content_type_of(head: bytes) -> bytes:
    """Return the unfolded value of Content-Type in a raw head, or ``b""`` if there is none.

    The head begins with the request line.
    """
    match = _CONTENT_TYPE.search(head)
    return unfold(match[1]).strip(b" \t") if match is not None else b""


def soap_action_of(head: bytes) -> str | None:
    """Return the SOAPAction without its quotes (SOAP 1.1 6.1.1), or ``None`` if there is none.

    SRMP always sends ``MSMQMessage``.
    """
    match = _SOAP_ACTION.search(head)
    if match is None:
        return None
    value = unfold(match[1]).strip(b" \t").decode("latin-1")
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
