"""Arrow without pandas, for a process that needs none.

``pyarrow.array`` looks whether it was handed a pandas series, and loads pandas to know: 45 MB and half a second. Where pandas
cannot be found Arrow does without.
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
    """For the whole process, and only where nothing else wants pandas: call it before Arrow is used."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Absent())
