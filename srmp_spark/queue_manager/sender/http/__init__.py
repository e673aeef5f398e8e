"""Send by HTTP: addresses, connections and their places, and one exchange."""
