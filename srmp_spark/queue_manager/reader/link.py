"""The main process's side of the reader process: reads of the log without a pause for the SRMP port.

Reading means unpacking, decoding and Arrow, all of which would hold the loop (and Arrow is never loaded here). A child does
it; :mod:`srmp_spark.queue_manager.child` says what a child is. It holds no lock; reads answer 503 while it is away.
"""

from __future__ import annotations

from srmp_spark.queue_manager.child.link import ChildLink

DAMAGED = "damaged"
"""Code of a refusal: rows cannot be read any more."""


class ReaderLink(ChildLink):
    """Starts the reader, keeps it running, and talks to it. :mod:`.process` says which settings it takes."""

    module = "srmp_spark.queue_manager.reader.process"
    noun = "reader"
