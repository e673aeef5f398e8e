"""Read queues in Spark: offsets, micro-batches, partitions, received marks."""
