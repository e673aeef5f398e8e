"""The tables of ``store.db``, one module for each concept.

Functions with a parameter ``transaction`` are for :meth:`Journal.transact`. Functions with a
parameter ``connection`` or ``db`` that write do so in the transaction that the caller has begun.
Nothing that they write is stored before the commit of that transaction. :mod:`srmp_spark.store`
explains the words mark, epoch, hole and position.
"""
