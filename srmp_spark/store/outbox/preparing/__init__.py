"""Prepare a batch of stages for its commit: scan, identities, order, packing.

:mod:`.preparation` has the steps, and :mod:`srmp_spark.store.outbox` the words. A method that works
*in steps* is a generator: the caller iterates over it until it ends, and may do other work between
two steps. The *row number* of a row counts through all stages of the batch, from 0. A *mask* has
one truth value for each row number. The *order of sending* is that of the option ``orderBy``; the
*place* of a row is its index in this order. A batch is *large* if it has more than
:data:`.ROWS_AT_ONCE` rows: the numbers about its rows are then in files.
"""
