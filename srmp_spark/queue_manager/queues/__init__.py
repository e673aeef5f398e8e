"""The queues of a queue manager and their consumers, in the memory of the main process."""
