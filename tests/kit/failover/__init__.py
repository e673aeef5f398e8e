"""A queue manager moves from node to node under traffic, for ``make failover``."""
