"""Use Arrow without pandas, in a process that does not need pandas.

``pyarrow.array`` checks whether its argument is a pandas series, and loads pandas for this check.
That costs 45 MB and half a second. Arrow works without pandas when pandas cannot be found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out in this process", name=name)


def leave_out_pandas() -> None:
    """Make every later ``import pandas`` of this process fail with :class:`ModuleNotFoundError`.

    Call this before Arrow is used, and only in a process where no other code needs pandas. If
    pandas is already loaded, nothing is changed.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Absent())
