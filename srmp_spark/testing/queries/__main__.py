"""``python -m srmp_spark.testing.queries``."""

import sys

from srmp_spark.testing.queries.run import main

if __name__ == "__main__":
    sys.exit(main())
