"""Which queues an entry of the configuration is about: names and globs, compared in canonical form."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import canonical_queue_name

EVERYTHING = "*"
"""The pattern of every queue, and the only one that also stands for what is no queue of ours: what goes out, metrics."""


def parse_pattern(where: str, text: object) -> str:
    """A name or glob (``private$/orders``, ``private$/*``) in canonical form. Raises :class:`ConfigurationError`."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{where}: a queue is a name or a glob, like private$/orders or private$/*, got {text!r}")
    try:
        return canonical_queue_name(text)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def matches(patterns: Iterable[str], queue: str) -> bool:
    """Whether one of ``patterns`` stands for ``queue``, a canonical name; ``[`` begins a set, as everywhere."""
    return any(pattern in (EVERYTHING, queue) or fnmatchcase(queue, pattern) for pattern in patterns)
