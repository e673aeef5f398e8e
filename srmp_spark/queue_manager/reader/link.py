"""Read the log in a child process, so that reads do not delay the SRMP port.

This is the main process's side of the reader process. Reading means unpacking, decoding and Arrow,
and each of these would block the main process's loop. The main process therefore never loads Arrow.
:mod:`srmp_spark.queue_manager.child` describes what a child is. The reader holds no lock. Reads are
answered 503 while no reader is running.
"""

from __future__ import annotations

from collections.abc import Mapping

from srmp_spark.queue_manager.child.link import ChildLink
from srmp_spark.queue_manager.reader.crossing import (
    READER_COMMANDS,
    READER_EVENTS,
    ReaderCommand,
    ReaderEvent,
)

DAMAGED = "damaged"
"""Code of a refusal: stored rows can no longer be read."""
INTERNAL = "internal"
"""Code of a refusal: a bug, or a database that cannot be read."""


class ReaderLink(ChildLink[ReaderCommand, ReaderEvent]):
    """Starts the reader process, keeps it running, and talks to it (:mod:`.crossing`)."""

    module = "srmp_spark.queue_manager.reader.process"
    noun = "reader"
    commands = READER_COMMANDS
    events = READER_EVENTS
    environment: Mapping[str, str] = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "262144",
        "MALLOC_TRIM_THRESHOLD_": "1048576",
    }
    """Settings of Arrow's and glibc's memory allocation.

    Segments are buffers of megabytes that are used once, but Arrow's own pool and glibc's heap keep
    such buffers. After a few segments were sealed, 240 MB stayed in use; 110 MB stay when each
    buffer is returned to the kernel at once.
    """
