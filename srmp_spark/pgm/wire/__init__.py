"""Read and write the packets of PGM (RFC 3208 8 and 9)."""
