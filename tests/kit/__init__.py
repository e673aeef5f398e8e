"""The tools of this repository's tests.

This package holds simulators and their models, planted bugs, fuzzers, hostile peers, oracles and
the demo. These tools use internals of the product. The product imports none of the tools, and they
are not installed with the product. The peers for users' own tests are in :mod:`srmp_spark.testing`.

Words of the simulators (:mod:`.simulation`, :mod:`.sending_simulation` and the modules ``sim_…``):

- Everything is drawn from a *seed*, and time is that of a simulated clock: in seconds, or in
  microseconds since 1970 (``at``, names with ``utc``).
- The *engine* is the class of srmp-spark without I/O: ``Receiver`` or ``Sender``. A *life* is the
  time between two crashes.
- A message's *key* is the text in its body. A *peer* is the other end of a transfer.
- An *oracle* compares what happened with what must happen. *Marks* count how often each event
  happened in a run.
- A *decision* says that an application received rows of a queue, or that they were purged or
  discarded. Commitment receipts and final stream receipts report it.
- A *planted bug* is a class with one fault, which the simulator must find.
- Numbers such as 3.1.5.1 are sections of [MC-MQSRM].
"""
