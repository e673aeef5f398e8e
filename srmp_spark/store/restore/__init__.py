"""Make a new data directory from the Delta state, after the disk was lost (docs/adr/0015)."""
