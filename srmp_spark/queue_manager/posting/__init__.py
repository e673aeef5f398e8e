"""POST to other machines: names, addresses, one exchange, and which URLs may be called at all."""
