"""Checks that no row is lost between a queue and a query, with random schedules and a model.

The schedules use Spark in the many ways in which people use it.

- A *schedule* is a list of steps (:mod:`.steps`): events such as an arriving message, a query that
  starts, or a queue manager that is restored. The *world* (:mod:`.world`) carries them out.
- The *model* (:mod:`.truth`) is told each event and states which rows each query must read. A
  contradiction raises :class:`.truth.BrokenPromiseError`.
- A *log* is one queue of one queue manager. A *row* is a message in it, by its sequence.
- A query *meets* a queue when the query sees the queue for the first time. Then it is decided which
  rows the query *leaves out*.
- The *marks* of a consumer are the rows that it has received. ``receive`` queries set marks,
  ``peek`` queries do not.
- A *life* of a query is one process. *Micro-steps* are the calls of Spark's engine in a life.
- A *story* is a list of readable lines about a schedule.
"""
