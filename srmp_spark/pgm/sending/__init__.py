"""The source of PGM: its window, its rate, and its repairs (RFC 3208 5)."""
