"""The SRMP port: connections, requests and answers of HTTP, and how a POST gets into the store."""
