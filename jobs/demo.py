"""make demo: SRMP messages over real HTTP into a Delta table and out again, while what carries them is killed.

What it does stands in ``srmp_spark/testing/demo``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from srmp_spark.testing.demo.run import main

if __name__ == "__main__":
    sys.exit(main(ingest=Path(__file__).with_name("ingest.py")))
