"""The rows of queues: find them, seal them into segments, read them, delete them."""
