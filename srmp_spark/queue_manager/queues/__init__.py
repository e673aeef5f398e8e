"""The queues of a queue manager and their consumers, in the memory of the main process.

Words of this package, which other packages use too. A *row* is a message in the log of a queue, and
its *sequence* is its number in the log. A *hole* is a sequence without a row, because the row was
purged, given up as damaged, or lost. An *epoch* is a random text that names one history of
sequences; a new one begins when the data directory is a copy or a backup. A row is *trimmed* when
retention has deleted it. *Sealing* copies rows from the database to segment files.

A *consumer* is a named reader of a queue. To *mark* a row is to record that a consumer has received
it; the *mark* of a consumer is the sequence up to which it has received all rows. The *default*
consumer decides about rows: a *decision* states what became of a row (received, purged, expired),
and the sender of the row may get a receipt about it. A *lease* lets one receiver, its *holder*,
move the marks of a consumer.

The *engine* (:mod:`srmp_spark.srmp.receiving`) decides which messages are accepted, and the
*acceptor* (:mod:`srmp_spark.queue_manager.srmp_port.acceptor`) gives them to it. The *gate* is
closed while no message is accepted. The *order queue* is ``private$/order_queue$``, to which peers
send stream receipts; the sender process reads it, and no consumer does.
"""
