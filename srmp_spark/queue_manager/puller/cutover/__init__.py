"""Cut a remote queue over: from ``mode = "copy"``, in which readers there go on, to ``move``.

Theory of operation. While a subscription copies, each message is in two places: its row here, and
its original there. A reader there receives originals, and no rule makes it stop at a moment that
this queue manager knows. So whether a row belongs to the readers here is decided for each message
by what happens to its original (:mod:`srmp_spark.mqrr.copied_states`). The subscription itself is
in one of these phases, which are derived from what is stored, so that a kill changes none of them:

    phase      stored                                            consumers here
    ─────────────────────────────────────────────────────────────────────────────────────────
    COPYING    mode "copy"                                       may read the copies
    SETTLING   mode "move", copies that are not decided          are held by the cut-over
    MOVED      mode "move", every copy is decided                read; what was received there
                                                                 is marked as received for them
    MOVING     mode "move", nothing was copied                   read

    COPYING ── cut over: one commit ──▶ SETTLING ── all decided, marks stored ──▶ MOVED

1. *Check* (:mod:`.checking`, :mod:`.findings`). A complete walk through the remote queue that began
   after the question, compared with what was copied, by message identifier and lookup identifier.
   An open with the share mode MQ_DENY_SHARE shows whether a reader there has the queue open to
   receive. The check changes nothing. It tells the operator what would happen, and whether readers
   there and here have stopped. The cut-over would be correct without it.
2. *Cut over.* The mode, and the consumers that will read here, are stored in one commit. A kill
   before it leaves a copy, and a kill after it leaves a cut-over that the next start continues.
3. *Settle* (:mod:`.settled`, ``moving_and_copying/settling.py``). First the leases of the consumers
   are taken (:mod:`.holding`): a row whose original may still be received there must not be given
   to a reader here. Then messages are moved as always. Each copied message is removed there (its
   row belongs to the readers here), or it is found to be gone (it was received there). When all are
   decided, the rows of the second kind are marked as received for the consumers, the end is stored,
   and the leases are released. A mark deletes nothing: ``peek``, other consumers and the journal of
   the queue still show these rows.

A copy whose row does not exist any more (purged here, or given up) is forgotten when the cut-over
begins, so the message is moved as a new one. Otherwise its original would be removed, and nobody
would have it.
"""
