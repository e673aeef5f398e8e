"""What these tests share with those of the store, the outbox, the Delta state and the queue manager."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("store", "outbox", "delta", "queue_manager"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
