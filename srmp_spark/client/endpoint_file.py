"""Read the file in which a queue manager that serves a data directory states its ports."""

from __future__ import annotations

import json
from pathlib import Path

from srmp_spark.holder import Holder
from srmp_spark.interface import ENDPOINT_FILE, EndpointFile


def read_endpoint(data_dir: Path) -> EndpointFile | None:
    """Return the endpoint file of ``data_dir``, or ``None`` if it is not that of a living process.

    After a kill the file names ports that another program may use by now. So the process that wrote
    the file must not be gone, and the file must lie in the directory for which it was written.
    Whether the process answers is not tried. A process of another host counts as living.
    """
    try:
        endpoint: EndpointFile = json.loads((data_dir / ENDPOINT_FILE).read_text(encoding="utf-8"))
        if not all(isinstance(endpoint[key], str) for key in ("api", "queue_manager", "listening")):
            return None
        found = data_dir.stat()
        if endpoint.get("directory", [found.st_dev, found.st_ino]) != [found.st_dev, found.st_ino]:
            # The file was copied together with the directory.
            return None
        if "process" in endpoint and Holder.from_dict(endpoint["process"]).is_gone():
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return endpoint
