"""``--queue NAME[:transactional][:journal][:multicast=IP:PORT]``."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import MulticastAddress, local_queue_name, split_queue_suffixes

QUEUE_SUFFIXES = ("transactional", "multicast", "journal")
"""What may follow a queue's name after a colon (docs/INTERFACE.md section 2)."""
MISSPELLED = 0.8
"""How much alike (difflib) the end of a name and a suffix are to be a typing error: ``transactionl`` is, ``cast`` is not."""
ABBREVIATED = 3
"""Letters from which on the beginning of a suffix is taken for it: ``:trans`` is an error, a queue ``a:t`` is a queue."""


def _suffix_meant(word: str) -> str | None:
    """The suffix that ``word`` abbreviates or misspells, if any."""
    if len(word) >= ABBREVIATED:
        for suffix in QUEUE_SUFFIXES:
            if suffix.startswith(word):
                return suffix
    return next(iter(difflib.get_close_matches(word, QUEUE_SUFFIXES, 1, MISSPELLED)), None)


class QueueSpec(NamedTuple):
    """``NAME[:transactional][:journal][:multicast=IP:PORT]``; the name may hold colons."""

    name: str
    transactional: bool
    journal: bool = False
    """Keep a journal. ``False``: leave it as it is."""
    multicast: MulticastAddress | None = None
    """Messages that are multicast to it come into the queue, as long as this process runs."""

    @classmethod
    def parse(cls, text: str) -> QueueSpec:
        """Raises :class:`ConfigurationError`, also for a name that ends in what is nearly a suffix: that is a typing error."""
        name, suffixes = split_queue_suffixes(text)
        _, colon, ending = name.rpartition(":")
        meant = _suffix_meant(ending.partition("=")[0].lower()) if colon else None
        if meant is not None:
            raise ConfigurationError(
                f"unknown suffix :{ending} in --queue {text!r}; did you mean {meant!r}? "
                f"(a queue that is really called so is made by PUT /v1/queues)"
            )
        addresses = [
            suffix.partition("=")[2] for suffix in suffixes if suffix.startswith("multicast=")
        ]
        try:
            multicast = MulticastAddress.parse(addresses[0]) if addresses else None
        except ValueError as error:
            raise ConfigurationError(f"--queue {text!r}: {error}") from None
        if len(addresses) > 1:
            raise ConfigurationError(
                f"--queue {text!r}: a queue listens on one multicast address; make another queue"
            )
        if multicast is not None and "transactional" in suffixes:
            raise ConfigurationError(
                f"--queue {text!r}: multicast messages are express, a transactional queue "
                "takes none"
            )
        return cls(
            local_queue_name(name), "transactional" in suffixes, "journal" in suffixes, multicast
        )
