"""Run ``make demo``: SRMP messages over real HTTP into a Delta table and out again.

Meanwhile the demo kills the processes that carry the messages. The code is in ``tests/kit/demo``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.kit.demo.run import main  # noqa: E402  # after the path is set

if __name__ == "__main__":
    sys.exit(main(ingest=Path(__file__).with_name("ingest.py")))
