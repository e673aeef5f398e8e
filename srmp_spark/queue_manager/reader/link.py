"""The main process's side of the reader process: reads of the log without a pause for the SRMP port.

Reading means unpacking, decoding and Arrow, all of which would hold the loop (and Arrow is never loaded here). A child does
it; :mod:`srmp_spark.queue_manager.child` says what a child is. It holds no lock; reads answer 503 while it is away.
"""

from __future__ import annotations

from collections.abc import Mapping

from srmp_spark.queue_manager.child.link import ChildLink

DAMAGED = "damaged"
"""Code of a refusal: rows cannot be read any more."""
INTERNAL = "internal"
"""Code of a refusal: a bug, or a database that cannot be read."""


class ReaderLink(ChildLink):
    """Starts the reader, keeps it running, and talks to it. :mod:`.process` says which settings it takes."""

    module = "srmp_spark.queue_manager.reader.process"
    noun = "reader"
    environment: Mapping[str, str] = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "262144",
        "MALLOC_TRIM_THRESHOLD_": "1048576",
    }
    """Segments are buffers of megabytes, used once. Arrow's own pool and glibc's heap keep them for later: 240 MB after a few
    segments were sealed, where 110 are left when each goes back to the kernel at once."""
