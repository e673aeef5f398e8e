"""Planted bugs: repaired faults, broken again in the process that is attacked, to show that the attack finds them.

``sitecustomize.py`` in this folder is loaded by Python itself when the folder stands in ``PYTHONPATH``; it plants the bug that
:data:`VARIABLE` names. Nothing else loads this package, and without both variables nothing is changed.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ATTACK_PLANTED_BUG"
"""Environment variable with the name of one bug of :mod:`tests.kit.attack.planted.bugs`."""


def environment_for(bug: str) -> dict[str, str]:
    """Return the environment in which a Python process has ``bug``, or an empty one if ``bug`` is empty."""
    if not bug:
        return {}
    folder = str(Path(__file__).parent)
    return {
        VARIABLE: bug,
        "PYTHONPATH": os.pathsep.join((folder, os.environ.get("PYTHONPATH", ""))),
    }
