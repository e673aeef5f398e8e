"""``python -m benchmarks`` is ``benchmarks/bench.py``."""

import sys

from benchmarks.bench import main

sys.exit(main())
