"""Runs :func:`tests.kit.queries.run.main` for ``python -m tests.kit.queries``."""

import sys

from tests.kit.queries.run import main

if __name__ == "__main__":
    sys.exit(main())
