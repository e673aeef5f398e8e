"""Simulates the sending side in virtual time, with a simulated network and disk.

The dispatcher, engine, connections and addresses are those of the sender process.

- :mod:`.virtual_loop`: an event loop whose time advances only when nothing is ready to run.
- :mod:`.peers`: destinations that answer, and destinations that are dead, black-holed, silent,
  slow or refusing, or that have a slow line.
- :mod:`.rig`: the dispatcher between a simulated outbox and these peers.
- :mod:`.life`: one seed is one run with many destinations, checked against rules.
- :mod:`.letters`: the same for dead letters that are delivered to the queues of applications.
- :mod:`.planted`: planted bugs which :mod:`.life` and :mod:`.letters` must find.
- :mod:`.day`: a day of traffic to a thousand destinations, a tenth of them in trouble.

A *row* is one message, named by a text. An application *commits* a *batch* of rows to the *outbox*,
which numbers the rows of each outgoing queue with *serials*. A *peer* is a simulated destination. A
*good* peer behaves well; the others are *in trouble*. A *dead letter* is a message that is given up
with a reason. Times are in seconds of the virtual clock.

    python -m tests.kit.wayout --seeds 1000
    python -m tests.kit.wayout --day --hours 24
"""
