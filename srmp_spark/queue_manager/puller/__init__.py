"""Remote queues that are read into ours: ``[[subscription]]`` of the configuration ([MS-MQRR] 3.2).

In the main process, which decides and stores:

subscriptions   which queues, from the configuration
puller          one task for each subscription: connects, moves or copies, waits, begins anew
moving          lock, store, remove, publish: each message once
copying         peek alone, and never the same message twice
stored          what is stored meanwhile
publishing      rows
remotes         connections and open queues, by way of the gateway

In the gateway, a process of its own (:mod:`srmp_spark.queue_manager.gateway`), which never opens the data directory:

gateway         its connections, and its end of the channel
connection      one RPC connection in the loop
remote          an open queue over it: whole messages

In both:

crossing        what crosses between the two
answers         what a remote queue answers, and how a call fails
pulled          one message
"""
