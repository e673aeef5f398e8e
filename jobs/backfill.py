"""Bring old rows or files into a message table or to a queue; see ``--help``.

The script runs with python and with spark-submit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In a clone the package is not installed, and Spark's workers must find it too.
if (ROOT / "srmp_spark").is_dir():
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )

from srmp_spark.jobs.backfill import main  # noqa: E402  # after the path is set

if __name__ == "__main__":
    sys.exit(main())
