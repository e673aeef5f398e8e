"""State tables in the Delta format: files, commits, checkpoints, durability."""
