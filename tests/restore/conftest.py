"""What these tests share with those of the store, the outbox and the Delta state."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("store", "outbox", "delta"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
