"""Read remote queues into local ones: ``[[subscription]]`` ([MS-MQRR] 3.2).

In the main process, which decides and stores:

    subscriptions   the remote queues to read, from the configuration
    added           subscriptions that were added at run time
    pullers         all subscriptions
    puller          one task for each subscription: connects, moves or copies, waits, connects again
    moving          lock, store, remove, publish: each message once
    copying         peek only, and each message once
    stored          the stored form of messages that are no rows yet
    settling        decides each copied message of a queue that is moved now
    cutover         from copy to move: check, hold the consumers, settle, mark
    publishing      makes rows
    remotes         connections and open queues, through the gateway

In the gateway, a separate process (:mod:`srmp_spark.queue_manager.gateway`) that never opens the
data directory:

    gateway         its connections, and its end of the channel
    connection      one RPC connection in the event loop
    remote          an open queue over a connection: whole messages

In both processes:

    crossing        messages between the two processes
    answers         answers of a remote queue, and errors of a call
    pulled          one message
"""
