"""Parse names and globs of queues in entries of the configuration.

:func:`~srmp_spark.names.queue_matches` defines which queues a glob matches.
"""

from __future__ import annotations

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import canonical_queue_name


def parse_pattern(where: str, text: object) -> str:
    """Check a queue name or glob, such as ``private$/*``, and return its canonical form.

    ``where`` names the entry in errors. Raises :class:`ConfigurationError` if ``text`` is neither.
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            f"{where}: a queue is a name or a glob, like private$/orders or private$/*, "
            f"got {text!r}"
        )
    try:
        return canonical_queue_name(text)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from None
