"""MSMQ messages into a Delta table, each exactly once and in order: see ``--help``. Runs with python and with spark-submit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if (ROOT / "srmp_spark").is_dir():  # from a clone: Spark's workers must find the package too
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )

from srmp_spark.jobs.ingest import main  # noqa: E402  # behind the path

if __name__ == "__main__":
    sys.exit(main())
