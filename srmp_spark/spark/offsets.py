"""Offsets: where a query stands in each log (INTERFACE.md section 4).

    {"qm":{"<guid>":{"<epoch>":{"private$/orders":1000}}},"v":1}

The last sequence is included: 1000 says that 1000 was read. Spark compares offsets **as text**, so one value must have one
text: keys are sorted, numbers are plain. Queue managers are known by GUID, never by URL: a log may move to another host. A
queue of a queue manager stands in one epoch at a time; sequences go on counting from one epoch to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from srmp_spark.errors import DataLossError

FORMAT = 1
"""``v``: a checkpoint of a later format is refused, never guessed at."""


class LogKey(NamedTuple):
    """One log: a queue of a queue manager."""

    queue_manager: str
    queue: str

    def __str__(self) -> str:
        return f"{self.queue} of queue manager {self.queue_manager}"


class Position(NamedTuple):
    """A place in a log: everything up to ``sequence`` was read."""

    epoch: str
    sequence: int


class Offsets(Mapping[LogKey, Position]):
    """Positions by log, immutable; iterates in the order of its text."""

    __slots__ = ("_positions",)

    def __init__(self, positions: Mapping[LogKey, Position]) -> None:
        self._positions = dict(sorted(positions.items()))

    def __getitem__(self, key: LogKey) -> Position:
        return self._positions[key]

    def __iter__(self) -> Iterator[LogKey]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"<Offsets {self}>"

    def __str__(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """For Spark, which writes it as JSON in the order of insertion."""
        managers: dict[str, dict[str, dict[str, int]]] = {}
        for key, position in self._positions.items():
            managers.setdefault(key.queue_manager, {}).setdefault(position.epoch, {})[key.queue] = position.sequence
        ordered = {
            guid: {epoch: dict(sorted(queues.items())) for epoch, queues in sorted(epochs.items())}
            for guid, epochs in managers.items()
        }
        return {"qm": ordered, "v": FORMAT}

    @classmethod
    def from_dict(cls, value: Any) -> Offsets:  # noqa: ANN401  # whatever a checkpoint holds
        """The reverse of :meth:`as_dict`. Raises :class:`DataLossError` for another format or anything that is no offset."""
        try:
            version, managers = value["v"], value["qm"]
        except (TypeError, KeyError):
            raise DataLossError(
                f"not an offset of format('srmp'): {str(value)[:200]}; is this the checkpoint of another source?"
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
                        raise DataLossError(f"damaged offset for {key}: {str(value)[:200]}; start with a new checkpoint")
                    positions[key] = Position(epoch, sequence)
        return cls(positions)

    @classmethod
    def from_text(cls, text: str) -> Offsets:
        """The reverse of ``str``; any JSON spelling of it."""
        try:
            return cls.from_dict(json.loads(text))
        except ValueError:
            raise DataLossError(f"not an offset of format('srmp'): {text[:200]!r}") from None
