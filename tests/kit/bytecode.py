"""Put compiled modules into the archives that Spark's Python workers import PySpark from (``make setup`` runs this once).

A worker's path begins with ``pyspark.zip`` and the archive of Py4J, which hold sources alone. Python keeps no compiled file of
what it imports from an archive, so each worker, each planner of a data source and each runner of a stream compiles PySpark
anew: more than a second of CPU for each of the processes of a test, of which there are hundreds. With the compiled file of a
module beside its source Python takes that one, and a traceback still shows the source.
"""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def add_bytecode(archive: Path) -> int:
    """Rewrite ``archive`` with the compiled file of each of its modules; return how many were compiled.

    An archive that has them already, of this version of Python, is left as it is.
    """
    compiled = 0
    with (
        zipfile.ZipFile(archive) as old,
        tempfile.TemporaryDirectory(prefix="srmp-spark-bytecode-") as folder,
    ):
        names = set(old.namelist())
        sources = {name for name in names if name.endswith(".py")}
        if all(_is_current(old, name + "c", names) for name in sources):
            return 0
        new = Path(f"{archive}.new")
        source, target = Path(folder, "module.py"), Path(folder, "module.pyc")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as written:
            for name in old.namelist():
                if name.endswith(".pyc"):
                    continue
                content = old.read(name)
                written.writestr(old.getinfo(name), content)
                if name in sources:
                    source.write_bytes(content)
                    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    py_compile.compile(
                        str(source),
                        str(target),
                        f"{archive}/{name}",
                        doraise=True,
                        invalidation_mode=mode,
                    )
                    written.writestr(name + "c", target.read_bytes())
                    compiled += 1
    os.replace(new, archive)  # noqa: PTH105  # a worker that starts meanwhile has the old one whole
    return compiled


def _is_current(archive: zipfile.ZipFile, name: str, names: set[str]) -> bool:
    magic = importlib.util.MAGIC_NUMBER
    return name in names and archive.read(name)[: len(magic)] == magic


def main() -> int:
    """Treat the archives of the PySpark that is installed here."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        print("bytecode: PySpark is not installed: run make setup", file=sys.stderr)
        return 1
    for archive in sorted((Path(found.origin).parent / "python" / "lib").glob("*.zip")):
        print(f"{archive.name}: {add_bytecode(archive)} modules compiled")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
