"""Offsets: where a query stands in each log, and where it began (INTERFACE.md section 4).

    {"qm":{"<guid>":{"<epoch>":{"private$/orders":1000}}},"v":1}

The last sequence is included: 1000 says that row 1000 was read. Spark compares offsets **as text**,
so one value must have one text: keys are sorted, and numbers are plain. Queue managers are
identified by GUID, never by URL, because a log may move to another host. A queue of a queue manager
stands in one epoch at a time. Sequences continue from one epoch to the next.

    {"began":{"<guid>":{"private$/orders":901}},"qm":…,
     "taken":{"<guid>":{"private$/orders":[[906,906]]}},"v":1}

A query may mark as received the rows from ``began`` to where it stands, and no other rows. The
beginning of a query is stored nowhere else for as long as its checkpoint lives.

``taken`` has the rows from there on that the consumer had received before the query began
(``startingOffsets`` = ``unreceived``), in the form of :mod:`srmp_spark.sequences.as_json`. The
query leaves these rows out, and does not mark them as received, because it may continue as another
consumer. A batch that ends after such rows has them in its offset. The next batch begins after them
(``began``), and has only those that lie further on.

``began`` and ``taken`` are written only for queries that did not begin at a log's first sequence.
The first checkpoints had neither. For a log that they do not name, the queue manager knows where
its receiver began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from srmp_spark.errors import DataLossError
from srmp_spark.sequences.as_json import set_as_json, set_from_json
from srmp_spark.sequences.sequence_set import SequenceSet

FORMAT = 1
"""Version of the format of offsets: the value of the JSON key ``v``.

A checkpoint with another version is refused, and not interpreted.
"""


class LogKey(NamedTuple):
    """Names one log: a queue of a queue manager."""

    queue_manager: str
    queue: str

    def __str__(self) -> str:
        return f"{self.queue} of queue manager {self.queue_manager}"


class Position(NamedTuple):
    """A place in a log: every row up to ``sequence`` was read."""

    epoch: str
    sequence: int


class Began(NamedTuple):
    """Where a query began to read a log."""

    first: int
    """The first sequence that the query may have read, and that its marks may cover."""
    left_out: SequenceSet = SequenceSet()
    """Sequences from ``first`` on that the query leaves out. The set must not be changed."""

    def beyond(self, sequence: int) -> Began:
        """Return the beginning for a query whose marks up to ``sequence`` are sent.

        Left-out rows that the query has passed are not kept.
        """
        if not self.left_out or self.left_out.first > sequence:
            return self
        left = self.left_out.copy()
        left.discard_through(sequence)
        return Began(sequence + 1, left)


AT_THE_FIRST = Began(1)


class Offsets(Mapping[LogKey, Position]):
    """Immutable positions by log, which iterate in the order of the text.

    :attr:`began` says where the query began to read a log, unless that is :data:`AT_THE_FIRST`.
    """

    __slots__ = ("_positions", "began")

    def __init__(
        self, positions: Mapping[LogKey, Position], began: Mapping[LogKey, Began] | None = None
    ) -> None:
        self._positions = dict(sorted(positions.items()))
        given = began or {}
        self.began = {
            key: given[key]
            for key in self._positions
            if given.get(key, AT_THE_FIRST) != AT_THE_FIRST
        }

    def __getitem__(self, key: LogKey) -> Position:
        return self._positions[key]

    def __iter__(self) -> Iterator[LogKey]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and (self._positions, self.began) == (
            other._positions,
            other.began,
        )

    __hash__ = None  # type: ignore[assignment]  # like every mapping

    def __repr__(self) -> str:
        return f"<Offsets {self}>"

    def __str__(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """Return the offsets as a dictionary for Spark, which writes it as JSON in this order."""
        managers: dict[str, dict[str, dict[str, int]]] = {}
        for key, position in self._positions.items():
            managers.setdefault(key.queue_manager, {}).setdefault(position.epoch, {})[key.queue] = (
                position.sequence
            )
        ordered = {
            guid: {epoch: dict(sorted(queues.items())) for epoch, queues in sorted(epochs.items())}
            for guid, epochs in managers.items()
        }
        first: dict[str, dict[str, int]] = {}
        taken: dict[str, dict[str, list[list[int]] | str]] = {}
        for key, began in self.began.items():
            first.setdefault(key.queue_manager, {})[key.queue] = began.first
            if began.left_out:
                runs = set_as_json(began.left_out)
                taken.setdefault(key.queue_manager, {})[key.queue] = (
                    runs if isinstance(runs, str) else [*map(list, runs)]
                )
        parts = {"began": first, "qm": ordered, "taken": taken, "v": FORMAT}
        return {name: value for name, value in parts.items() if value or name == "qm"}

    @classmethod
    def from_dict(cls, value: Any) -> Offsets:  # noqa: ANN401  # any JSON value of a checkpoint
        """Parse the dictionary that :meth:`as_dict` returns.

        Raises :class:`DataLossError` if it has another format or is no offset.
        """
        try:
            version, managers = value["v"], value["qm"]
        except (TypeError, KeyError):
            raise DataLossError(
                f"not an offset of format('srmp'): {str(value)[:200]}; is this the "
                "checkpoint of another source?"
            ) from None
        if version != FORMAT:
            raise DataLossError(
                f"the checkpoint holds offsets of format {version!r}, this version reads {FORMAT}: "
                "run the version that wrote it, or start with a new checkpoint"
            )
        positions: dict[LogKey, Position] = {}
        for guid, epochs in managers.items():
            for epoch, queues in epochs.items():
                for queue, sequence in queues.items():
                    key = LogKey(guid, queue)
                    if key in positions or type(sequence) is not int or sequence < 0:
                        raise DataLossError(
                            f"damaged offset for {key}: {str(value)[:200]}; start with a new "
                            "checkpoint"
                        )
                    positions[key] = Position(epoch, sequence)
        try:
            return cls(positions, dict(_began(value.get("began", {}), value.get("taken", {}))))
        except (AttributeError, TypeError, ValueError) as error:
            raise DataLossError(
                f"damaged offset: {error}: {str(value)[:200]}; start with a new checkpoint"
            ) from error

    @classmethod
    def from_text(cls, text: str) -> Offsets:
        """Parse the text that ``str`` returns, in any JSON spelling.

        Raises :class:`DataLossError` if it is no offset.
        """
        try:
            return cls.from_dict(json.loads(text))
        except ValueError:
            raise DataLossError(f"not an offset of format('srmp'): {text[:200]!r}") from None


def _began(
    first: Mapping[str, Mapping[str, Any]], taken: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[LogKey, Began]]:
    for guid, queues in first.items():
        for queue, sequence in queues.items():
            if type(sequence) is not int or sequence < 1:
                raise ValueError(f"a query that began at {sequence!r:.50}")
            runs = taken.get(guid, {}).get(queue)
            yield (
                LogKey(guid, queue),
                Began(sequence, SequenceSet() if runs is None else set_from_json(runs)),
            )
