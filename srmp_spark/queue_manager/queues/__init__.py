"""The queues of a queue manager and their consumers, as the main process holds them in memory."""
