"""The client is tested against the queue manager in memory that the Spark tests use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "spark"))
