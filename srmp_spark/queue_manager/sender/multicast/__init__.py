"""Send by PGM multicast: one session for each group."""
