"""Run ``benchmarks/bench.py`` for ``python -m benchmarks``."""

import sys

from benchmarks.bench import main

sys.exit(main())
