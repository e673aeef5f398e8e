"""As ``python -m benchmarks``, for the parts that take minutes each: a table on stdout, its last line JSON."""

from __future__ import annotations

import sys

from benchmarks.bench import main
from benchmarks.registry import SCALE

if __name__ == "__main__":
    sys.exit(main(SCALE, "python -m benchmarks.scale"))
