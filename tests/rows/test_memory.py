"""Memory that is used again, but never under the feet of who still reads it."""

from __future__ import annotations

import pyarrow as pa

from srmp_spark.rows.memory import BLOCKS_MAX, Memory


def test_a_block_that_nothing_points_into_is_taken_again() -> None:
    memory = Memory()
    first = memory.take(1000)
    block = first.obj
    first.release()
    assert memory.take(500).obj is block


def test_a_block_that_a_column_points_into_is_left_alone() -> None:
    memory = Memory()
    view = memory.take(8)
    view[:] = (7).to_bytes(8, "little")
    column = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(view)])
    del view
    for _ in range(2 * BLOCKS_MAX):
        memory.take(8)[:] = bytes(8)
    assert column.to_pylist() == [7]
    last = column.slice(0, 1)
    del column
    memory.take(8)[:] = bytes(8)
    assert last.to_pylist() == [7]


def test_a_longer_piece_gets_a_longer_block_and_no_more_are_kept() -> None:
    memory = Memory()
    held = [memory.take(10 << number) for number in range(2 * BLOCKS_MAX)]
    assert [len(view) for view in held] == [10 << number for number in range(2 * BLOCKS_MAX)]
    assert len({id(view.obj) for view in held}) == len(held)
    held.clear()
    assert len(memory.take(30 << 20)) == 30 << 20
