"""The SRMP port: connections, requests and answers of HTTP, and the way of a POST into the store."""
