"""PGM over sockets: the groups that queues listen on, and the sockets that the sender process multicasts by."""
