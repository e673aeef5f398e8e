"""The SRMP port: connections, HTTP requests and answers, and how a POST gets into the store."""
