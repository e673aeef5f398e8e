"""Put compiled modules into the archives from which Spark's Python workers import PySpark.

``make setup`` runs this module once. A worker's path begins with ``pyspark.zip`` and the archive of
Py4J, and these archives hold only sources. Python does not save the compiled file of a module that
it imports from an archive. Therefore each worker, each planner of a data source and each runner of
a stream compiles PySpark again. The compilation costs each process of a test more than a second of
CPU, and the tests start hundreds of processes. When an archive holds the compiled file next to a
module's source, Python uses the compiled file. A traceback still shows the source.
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
    """Add the compiled file of each module to ``archive``, and return the number of modules.

    The function rewrites the archive. If the archive already holds all compiled files for this
    version of Python, the function leaves the archive unchanged and returns 0.
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
    # The replacement is atomic: a worker that starts meanwhile reads the complete old archive.
    os.replace(new, archive)  # noqa: PTH105
    return compiled


def _is_current(archive: zipfile.ZipFile, name: str, names: set[str]) -> bool:
    magic = importlib.util.MAGIC_NUMBER
    return name in names and archive.read(name)[: len(magic)] == magic


def main() -> int:
    """Add bytecode to the archives of the installed PySpark and return the exit code.

    The code is 0, or 1 if PySpark is not installed.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        print("bytecode: PySpark is not installed: run make setup", file=sys.stderr)
        return 1
    for archive in sorted((Path(found.origin).parent / "python" / "lib").glob("*.zip")):
        print(f"{archive.name}: {add_bytecode(archive)} modules compiled")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
