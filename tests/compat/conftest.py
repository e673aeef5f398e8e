"""What these tests share with those of reliable sessions and of remote read: peers with sockets."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("wsrm",):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
