"""Remote queues that are read into ours: ``[[subscription]]`` of the configuration ([MS-MQRR] 3.2).

subscriptions   which queues, from the configuration
connection      one RPC connection in the loop
moving          lock, store, remove, publish: each message once
copying         peek alone, and never the same message twice
pulled          what is stored meanwhile
publishing      rows
puller          one task for each subscription: connects, moves or copies, waits, begins anew
"""
