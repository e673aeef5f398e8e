"""POST to other machines: host names, addresses, one exchange, and which URLs may be called."""
