"""What these tests share with those of the store, the outbox, the sender and remote read."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("store", "outbox", "sender", "remote_read"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
