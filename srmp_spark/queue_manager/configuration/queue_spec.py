"""Parse the option ``--queue NAME[:transactional][:journal][:multicast=IP:PORT]``."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import MulticastAddress, local_queue_name, split_queue_suffixes

QUEUE_SUFFIXES = ("transactional", "multicast", "journal")
"""Words that may follow a queue's name after a colon (docs/INTERFACE.md section 2)."""
MISSPELLED = 0.8
"""Similarity (difflib) from which the end of a name counts as a misspelled suffix: ``transactionl``
does, ``cast`` does not.
"""
ABBREVIATED = 3
"""Letters from which the beginning of a suffix counts as the suffix: ``:trans`` is an error, but
``a:t`` is the name of a queue.
"""


def _suffix_meant(word: str) -> str | None:
    """Return the suffix of QUEUE_SUFFIXES that ``word`` abbreviates or nearly spells, or None."""
    if len(word) >= ABBREVIATED:
        for suffix in QUEUE_SUFFIXES:
            if suffix.startswith(word):
                return suffix
    return next(iter(difflib.get_close_matches(word, QUEUE_SUFFIXES, 1, MISSPELLED)), None)


class QueueSpec(NamedTuple):
    """One queue that ``--queue`` names. The name may hold colons."""

    name: str
    transactional: bool
    journal: bool = False
    """Whether to give the queue a journal. ``False`` leaves an existing queue's journal as it is.
    """
    multicast: MulticastAddress | None = None
    """The multicast address whose messages are put into the queue while this process runs."""

    @classmethod
    def parse(cls, text: str) -> QueueSpec:
        """Parse ``NAME[:transactional][:journal][:multicast=IP:PORT]``.

        Raises :class:`ConfigurationError` for an invalid text, and for a multicast address of a
        transactional queue. A name that ends in what is nearly a suffix is an error too, because
        that is probably a typing error.
        """
        name, suffixes = split_queue_suffixes(text)
        _, colon, ending = name.rpartition(":")
        meant = _suffix_meant(ending.partition("=")[0].lower()) if colon else None
        if meant is not None:
            raise ConfigurationError(
                f"unknown suffix :{ending} in --queue {text!r}; did you mean {meant!r}? "
                f"(PUT /v1/queues/NAME creates a queue that is really called that)"
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
                "accepts none"
            )
        return cls(
            local_queue_name(name), "transactional" in suffixes, "journal" in suffixes, multicast
        )
