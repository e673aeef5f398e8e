"""HTTP API of the queue manager (INTERFACE.md section 3): raw ASGI on uvicorn.

The API runs in the loop of the SRMP port. ``http`` reads requests and writes answers, ``router``
finds the handler, ``guard`` keeps out unauthenticated clients, and one module per resource holds
the handlers. There is no framework, because there are only some twenty routes.
"""
