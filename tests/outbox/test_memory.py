"""A batch does not have to fit into memory: 200,000 rows of 1 KB under a limit on what the process may hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = r"""
import sys
from srmp_spark.queue_manager.child.without_pandas import leave_out_pandas
leave_out_pandas()
import numpy as np, pyarrow as pa
from pathlib import Path
from outbox_kit import *

def status(name):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1]) // 1024

folder, rows, ordered = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "ordered"
desk = Desk(folder)
rng = np.random.default_rng(1)
PARTS, STEP = 10, 2000
metadata = {"srmp.order_by": '["t"]' if ordered else "[]"}
ids = []
for partition in range(PARTS):
    path = desk.outbox.stages.folder / str(partition)
    schema = pa.schema([("body", pa.binary()), ("destination", pa.string()), ("t", pa.int64()), ("key", pa.string())], metadata)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start in range(0, rows // PARTS, STEP):
            offsets = np.arange(0, 1024 * STEP + 1, 1024, dtype=np.int32)
            body = pa.Array.from_buffers(pa.binary(), STEP, [None, pa.py_buffer(offsets), pa.py_buffer(rng.bytes(1024 * STEP))])
            numbers = np.arange(start, start + STEP) + partition * (rows // PARTS)
            keys = pa.array([f"key-{n}" for n in numbers])
            t = pa.array(rng.integers(0, 1 << 40, STEP))
            writer.write_batch(pa.RecordBatch.from_arrays([body, pa.array([A] * STEP), t, keys], schema=schema))
    ids.append(desk.outbox.stages.add("app", "1", partition, "0", str(partition), NOW).stage_id)
before = status("VmRSS")
prepared = desk.outbox.prepare("app", "1", ids, NOW).run()
assert desk.write(prepared)[:2] == (rows, 0)
print(before, status("VmHWM"))
"""

ROWS = int(os.environ.get("SRMP_SPARK_MEMORY_ROWS", "200000"))
BASE_MB = 120
"""Python, Arrow and numpy, what Arrow's allocator holds, and SQLite's cache."""
WORK_MB = 110
"""Chunks of 8 MB on their way through scan, buckets, packing and transaction: a dozen."""
BYTES_A_ROW = 60
"""Numbers about each row while identities and order are worked out (limits.BATCH_ROWS_MAX)."""


@pytest.mark.parametrize("order", ["as staged", "ordered"])
def test_memory_is_bounded(tmp_path: Path, order: str) -> None:
    """200 MB of rows; the limit is far below that, and grows by 60 bytes a row."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "data"), str(ROWS), order],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    before, peak = map(int, out.stdout.split())
    assert before < BASE_MB
    assert peak < BASE_MB + WORK_MB + ROWS * BYTES_A_ROW // 2**20, f"{peak} MB"
