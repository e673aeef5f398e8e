"""The receiver of PGM: sessions, windows, and the repair of losses (RFC 3208 6)."""
