"""The rows of a slice that are for one transport, as the checks of the transport get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows to check. The numbers of rows count from the beginning of the slice."""

    columns: Mapping[str, pa.Array]
    """The columns of all rows of the slice, not of the chosen rows alone."""
    rows: int
    """Number of rows of the slice."""
    numbers: np.ndarray
    """The numbers of the chosen rows, ascending. There is at least one."""
    refuse: Callable[[int, str, str, str], None]
    """Function that refuses a row: its number, the reason, the problem and a hint.

    It raises where the first refusal ends the check, and else the check goes on with other rows.
    """
    multicast: bool
    """Whether this queue manager sends multicast."""
