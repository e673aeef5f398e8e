"""The SRMP port: HTTP connections, and the path of a POST into the store."""
