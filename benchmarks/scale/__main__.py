"""Run the benchmarks of the scale, as ``python -m benchmarks`` does.

They take minutes each. The table is on stdout, and its last line is JSON.
"""

from __future__ import annotations

import sys

from benchmarks.bench import main
from benchmarks.registry import SCALE

if __name__ == "__main__":
    sys.exit(main(SCALE, "python -m benchmarks.scale"))
