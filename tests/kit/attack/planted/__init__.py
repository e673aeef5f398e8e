"""Planted bugs: repaired faults that are broken again in the attacked process.

The bugs show that the attack finds such faults. Python itself loads ``sitecustomize.py`` of this
folder when the folder is in ``PYTHONPATH``. The module plants the bug that :data:`VARIABLE` names.
No other code loads this package. Without both variables nothing is changed.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ATTACK_PLANTED_BUG"
"""Environment variable with the name of one bug of :mod:`tests.kit.attack.planted.bugs`."""


def environment_for(bug: str) -> dict[str, str]:
    """Return the environment variables that plant ``bug`` in a Python process.

    The result is empty if ``bug`` is empty.
    """
    if not bug:
        return {}
    folder = str(Path(__file__).parent)
    return {
        VARIABLE: bug,
        "PYTHONPATH": os.pathsep.join((folder, os.environ.get("PYTHONPATH", ""))),
    }
